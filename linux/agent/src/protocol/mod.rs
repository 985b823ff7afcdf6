//! How replicas agree: what is folded and published, how they wait for each other, the rings.

pub(crate) mod arguments;
mod brief;
pub(crate) mod courtesy;
pub(crate) mod direct;
pub(crate) mod env;
pub(crate) mod meeting;
mod naps;
pub(crate) mod patience;
pub(crate) mod publish;
pub(crate) mod requests;
pub(crate) mod reread;
pub(crate) mod scene;
pub(crate) mod segments;
pub(crate) mod transfer;
pub(crate) mod uring;
pub(crate) mod waiting;
