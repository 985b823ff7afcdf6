//! After a fault: taking over from the lost, copying the living, finding what lies latent.

pub(crate) mod epitaph;
pub(crate) mod reintegration;
pub(crate) mod scrub;
pub(crate) mod takeover;
