//! Programs that compute: wall-clock time as a multiple of native.

use anyhow::{Context, Result};

use crate::configuration::{Configuration, NATIVE, protected};
use crate::sample::{Collector, Series};
use crate::workshop::{Scale, Workshop, rotated, words};

const ALL: [Configuration; 4] = [
    NATIVE,
    protected(1, "args"),
    protected(2, "args"),
    protected(3, "args"),
];

/// Seconds from start to end of each program.
///
/// # Errors
///
/// If a run fails.
pub fn measure(workshop: &Workshop, scale: Scale) -> Result<Vec<Series>> {
    let probe = workshop.path("probe");
    let probe = probe
        .to_str()
        .context("the work folder's name is not UTF-8")?;
    let integers = (250_000_000 / scale.divide).to_string();
    let floats = (100_000_000 / scale.divide).to_string();
    let random = "random-32m";
    let hash = [
        "busybox", "md5sum", random, random, random, random, random, random,
    ];
    let hash = &hash[..if scale.divide == 1 { hash.len() } else { 3 }];
    let digest = [
        "openssl", "dgst", "-sha512", random, random, random, random, random, random,
    ];
    let digest = &digest[..if scale.divide == 1 { digest.len() } else { 4 }];
    let programs: [(&str, Vec<_>); 6] = [
        ("integer loop", words(&[probe, "integer", &integers])),
        ("float loop", words(&[probe, "float", &floats])),
        ("busybox md5sum", words(hash)),
        (
            "busybox sha256sum",
            words(&["busybox", "sha256sum", random, random]),
        ),
        ("openssl dgst -sha512", words(digest)),
        ("bzip2 -c", words(&["bzip2", "-c", "text-4m"])),
    ];
    let mut collector = Collector::default();
    for repetition in 0..scale.long {
        for (name, command) in &programs {
            for configuration in rotated(&ALL, repetition) {
                let command = resolved(command);
                let seconds = workshop.seconds(configuration, &command)?;
                collector.add(name, configuration, "s", seconds);
            }
        }
    }
    Ok(collector.finish())
}

/// The command with its program's absolute path, as both native and rcoe runs get it.
fn resolved(command: &[std::ffi::OsString]) -> Vec<std::ffi::OsString> {
    let mut command = command.to_vec();
    let path = std::path::Path::new("/usr/bin").join(&command[0]);
    if path.exists() {
        command[0] = path.into_os_string();
    }
    command
}
