//! The host's side of the system sphere: packs boot images, starts a machine in QEMU, and passes on
//! what it says.
//!
//! All of this is outside the sphere of replication. The machine's console is the program's output;
//! its replicas' diaries tell what happened to them; its end and the program's exit status come
//! through ports. Nothing here is trusted by the replicas, and nothing that a replica says is
//! believed beyond a report.
//!
//! Not covered: any machine but QEMU's q35 and virt.

#![forbid(unsafe_code)]

mod arch;
mod backlog;
mod build;
mod coupling;
mod diaries;
mod diary;
mod difference;
mod disk;
mod error;
mod find;
mod guest;
mod linux;
mod live_input;
mod machine;
mod pack;
mod presence;
mod publish;
mod run;

pub use arch::Arch;
pub use coupling::{Approach, Counting, Coupling};
pub use diary::Entry;
pub use difference::Difference;
pub use disk::DiskFile;
pub use error::SystemError;
pub use find::{IMAGE_VARIABLE, folder, offers};
pub use guest::Guest;
pub use linux::{Carried, LinuxProgram, Start, find as find_linux, is_native};
pub use machine::{Accel, Nic, Threads, kvm};
pub use pack::pack;
pub use publish::{Protocol, Publish};
pub use run::{Ending, Settings, run};
