//! What `/proc/cpuinfo` tells.

use core::fmt;

use super::registers::FEATURES;
use crate::linux::Machine;

/// The one core. Programs cannot ask which one it is, and so are not told.
pub(crate) struct Cpu;

impl Cpu {
    pub(crate) const fn new(_machine: &impl Machine) -> Self {
        Self
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "processor\t: 0\nFeatures\t:")?;
        for (_, name) in FEATURES {
            write!(out, " {name}")?;
        }
        writeln!(out, "\nCPU architecture: 8\n")
    }
}
