//! What can be hit: registers, and memory by what it is used for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A class of state that a bit is flipped in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The sixteen general-purpose registers, the instruction pointer and the flags.
    Gpr,
    /// The low 128 bits of a vector register.
    Xmm,
    /// Program and library code.
    Text,
    /// Initialised and zeroed data of program and libraries.
    Data,
    /// The heap grown by `brk`.
    Heap,
    /// The program's stack.
    Stack,
    /// Other private memory.
    Mmap,
    /// Private memory of rcoe's in-process agent: code, data, stack.
    Agent,
    /// The replica's own outbox and results ring, which its siblings read.
    Shared,
    /// What the primary tells the kernel of an effect: the call's number and its arguments.
    Argument,
    /// What goes out with an effect.
    Content,
}

/// All classes with the weight with which a campaign draws them when they are enabled.
///
/// Registers are drawn more often because almost every flip in memory is never read again.
const WEIGHTS: [(Target, &str, u64); 11] = [
    (Target::Gpr, "gpr", 8),
    (Target::Xmm, "xmm", 1),
    (Target::Text, "text", 2),
    (Target::Data, "data", 2),
    (Target::Heap, "heap", 2),
    (Target::Stack, "stack", 2),
    (Target::Mmap, "mmap", 1),
    (Target::Agent, "agent", 2),
    (Target::Shared, "shared", 1),
    (Target::Argument, "argument", 1),
    (Target::Content, "content", 1),
];

impl Target {
    /// The word used on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        WEIGHTS
            .iter()
            .find(|(target, ..)| *target == self)
            .map_or("?", |(_, name, _)| name)
    }

    /// Whether it is there at the entry of an effect only ([`crate::inject::When::Entry`]).
    #[must_use]
    pub const fn is_of_effect(self) -> bool {
        matches!(self, Self::Argument | Self::Content)
    }

    fn weight(self) -> u64 {
        WEIGHTS
            .iter()
            .find(|(target, ..)| *target == self)
            .map_or(0, |(.., weight)| *weight)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The classes a campaign draws from, without repetition, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets(Vec<Target>);

impl Targets {
    /// Whether the class is drawn at all.
    #[must_use]
    pub fn contains(&self, target: Target) -> bool {
        self.0.contains(&target)
    }

    /// These classes without those that exist only under rcoe.
    #[must_use]
    pub fn without_agent(&self) -> Self {
        let alone = |target: &Target| {
            !matches!(target, Target::Agent | Target::Shared) && !target.is_of_effect()
        };
        Self(self.0.iter().copied().filter(alone).collect())
    }

    /// Whether all of them, or none, are there at the entry of an effect only.
    #[must_use]
    pub fn are_of_effect(&self, wanted: bool) -> bool {
        self.0.iter().all(|target| target.is_of_effect() == wanted)
    }

    /// True if there is nothing to draw from.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The class that a uniformly random word selects, by weight.
    ///
    /// # Panics
    ///
    /// If the set is empty.
    #[must_use]
    pub fn pick(&self, random: u64) -> Target {
        let total: u64 = self.0.iter().map(|target| target.weight()).sum();
        let mut rest = random % total;
        for &target in &self.0 {
            if rest < target.weight() {
                return target;
            }
            rest -= target.weight();
        }
        unreachable!("the rest is below the sum of all weights")
    }
}

impl Default for Targets {
    /// Registers and all private memory.
    fn default() -> Self {
        Self(
            WEIGHTS
                .iter()
                .map(|(t, ..)| *t)
                .filter(|t| *t != Target::Shared && !t.is_of_effect())
                .collect(),
        )
    }
}

impl FromStr for Targets {
    type Err = String;

    /// Parses a comma-separated list of class names; `regs` and `mem` stand for groups.
    fn from_str(list: &str) -> Result<Self, String> {
        let mut chosen = Vec::new();
        for word in list.split(',').map(str::trim) {
            match word {
                "regs" => chosen.extend([Target::Gpr, Target::Xmm]),
                "mem" => chosen.extend(Self::default().0.into_iter().skip(2)),
                _ => chosen.push(
                    WEIGHTS
                        .iter()
                        .find(|(_, name, _)| *name == word)
                        .map(|(target, ..)| *target)
                        .ok_or_else(|| format!("unknown target '{word}'; known: {}", known()))?,
                ),
            }
        }
        chosen.sort();
        chosen.dedup();
        Ok(Self(chosen))
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|target| target.name()).collect();
        f.write_str(&names.join(","))
    }
}

fn known() -> String {
    let names: Vec<_> = WEIGHTS.iter().map(|(_, name, _)| *name).collect();
    format!("regs, mem, {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{Target, Targets, WEIGHTS};

    #[test]
    fn groups_expand_and_print() {
        let targets: Targets = "regs,heap,gpr".parse().expect("valid list");
        assert_eq!(targets.to_string(), "gpr,xmm,heap");
        let all: Targets = "regs,mem".parse().expect("valid list");
        assert_eq!(all, Targets::default());
        assert!(!all.contains(Target::Shared));
    }

    #[test]
    fn unknown_words_are_refused() {
        let error = "regs,rsi".parse::<Targets>().expect_err("rsi is no class");
        assert!(error.contains("rsi") && error.contains("gpr"));
    }

    #[test]
    fn every_weight_is_drawn_exactly_as_often() {
        let all = "regs,mem,shared,argument,content";
        let targets: Targets = all.parse().expect("valid list");
        let total: u64 = WEIGHTS.iter().map(|(.., weight)| weight).sum();
        for (target, _, weight) in WEIGHTS {
            let hits = (0..total)
                .filter(|random| targets.pick(*random) == target)
                .count();
            assert_eq!(hits as u64, weight);
        }
    }
}
