//! Input files for the compatibility matrix: made, not shipped, and the same every time.
//!
//! The kind of content follows from the file name, so that a case only lists names.

use std::fmt::Write as _;

use anyhow::{Result, bail};

const WORDS: &[&str] = &[
    "the",
    "replica",
    "of",
    "one",
    "program",
    "computes",
    "same",
    "answer",
    "again",
    "and",
    "nothing",
    "leaves",
    "sphere",
    "until",
    "all",
    "agree",
    "on",
    "every",
    "byte",
    "a",
    "single",
    "flipped",
    "bit",
    "is",
    "caught",
    "before",
    "it",
    "can",
    "do",
    "harm",
    "while",
    "others",
    "go",
    "with",
    "their",
    "work",
    "core",
    "memory",
    "signal",
    "error",
    "vote",
    "machine",
    "radiation",
    "ageing",
    "marginal",
    "silent",
    "data",
    "corruption",
    "clock",
    "river",
    "mountain",
    "garden",
    "window",
    "paper",
    "yellow",
    "seven",
    "quietly",
    "running",
    "longer",
    "between",
];

/// A small seeded generator (`SplitMix64`).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts from a name, so that each file has content of its own.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        self.next_word() % bound
    }

    fn byte(&mut self) -> u8 {
        self.next_word().to_le_bytes()[0]
    }

    fn word(&mut self) -> &'static str {
        let index = usize::try_from(self.below(WORDS.len() as u64)).unwrap_or(0);
        WORDS[index]
    }
}

/// The content of input file `name`, about `size` bytes of it.
///
/// # Errors
/// If no generator knows the name's ending.
pub fn generate(name: &str, size: usize) -> Result<Vec<u8>> {
    let mut random = Random::new(name);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    let content = match ending {
        "txt" => text(&mut random, size),
        "bin" => (0..size).map(|_| random.byte()).collect(),
        "num" => numbers(&mut random, size),
        "csv" => table(&mut random, size),
        "json" => json(&mut random, size),
        "xml" => xml(&mut random, size),
        "ppm" => pixels(&mut random, size, 3),
        "pgm" => pixels(&mut random, size, 1),
        "wav" => sound(size),
        "dot" => graph(&mut random, size),
        "sql" => sql(&mut random, size),
        _ => bail!("no generator for an input file named {name}"),
    };
    Ok(content)
}

fn text(random: &mut Random, size: usize) -> Vec<u8> {
    let mut out = String::with_capacity(size + 16);
    let mut column = 0;
    while out.len() < size {
        let word = random.word();
        out.push_str(word);
        column += word.len() + 1;
        if column > 68 {
            out.push_str(if random.below(9) == 0 { ".\n\n" } else { "\n" });
            column = 0;
        } else {
            out.push(' ');
        }
    }
    out.push('\n');
    out.into_bytes()
}

fn fill(size: usize, mut line: impl FnMut(&mut String, u64)) -> Vec<u8> {
    let mut out = String::with_capacity(size + 128);
    let mut index = 0;
    while out.len() < size {
        line(&mut out, index);
        index += 1;
    }
    out.into_bytes()
}

fn numbers(random: &mut Random, size: usize) -> Vec<u8> {
    fill(size, |out, _| {
        let _ = writeln!(out, "{}.{:03}", random.below(1_000_000), random.below(1000));
    })
}

fn table(random: &mut Random, size: usize) -> Vec<u8> {
    fill(size, |out, index| {
        let (name, kind) = (random.word(), random.word());
        let _ = writeln!(out, "{index},{name},{kind},{}", random.below(100_000));
    })
}

fn json(random: &mut Random, size: usize) -> Vec<u8> {
    let mut out = b"[".to_vec();
    out.extend(fill(size, |out, index| {
        let comma = if index == 0 { "" } else { "," };
        let (name, kind, value) = (random.word(), random.word(), random.below(1000));
        let _ = writeln!(
            out,
            "{comma}{{\"id\":{index},\"{name}\":\"{kind}\",\"value\":{value}}}"
        );
    }));
    out.extend_from_slice(b"]\n");
    out
}

fn xml(random: &mut Random, size: usize) -> Vec<u8> {
    let mut out = b"<?xml version=\"1.0\"?>\n<items>\n".to_vec();
    out.extend(fill(size, |out, index| {
        let (word, value) = (random.word(), random.below(1000));
        let _ = writeln!(out, "<item id=\"{index}\" value=\"{value}\">{word}</item>");
    }));
    out.extend_from_slice(b"</items>\n");
    out
}

/// A binary PPM (three channels) or PGM (one): gradients with some noise on top.
fn pixels(random: &mut Random, size: usize, channels: usize) -> Vec<u8> {
    let side = (size / channels).isqrt().max(16);
    let magic = if channels == 3 { "P6" } else { "P5" };
    let mut out = format!("{magic}\n{side} {side}\n255\n").into_bytes();
    for row in 0..side {
        for column in 0..side {
            for channel in 0..channels {
                let slope = (row * (channel + 1) + column * 2) * 255 / (side * 5);
                let noise = usize::from(random.byte() % 24);
                out.push(u8::try_from((slope + noise).min(255)).unwrap_or(255));
            }
        }
    }
    out
}

/// A mono 16-bit WAV file with a slowly rising triangle wave.
fn sound(size: usize) -> Vec<u8> {
    let samples = u32::try_from(size / 2).unwrap_or(u32::MAX / 2);
    let (rate, bytes) = (8000_u32, samples * 2);
    let mut out = Vec::with_capacity(size + 44);
    out.extend_from_slice(b"RIFF");
    out.extend_from_slice(&(36 + bytes).to_le_bytes());
    out.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    out.extend_from_slice(&rate.to_le_bytes());
    out.extend_from_slice(&(rate * 2).to_le_bytes());
    out.extend_from_slice(b"\x02\0\x10\0data");
    out.extend_from_slice(&bytes.to_le_bytes());
    let mut phase = 0_u32;
    for sample in 0..samples {
        phase = (phase + 600 + sample / 8) % 40_000;
        let height = i32::try_from(phase.min(40_000 - phase)).unwrap_or(0) - 10_000;
        let value = i16::try_from(height).unwrap_or(0);
        out.extend_from_slice(&value.to_le_bytes());
    }
    out
}

fn graph(random: &mut Random, size: usize) -> Vec<u8> {
    let mut out = b"digraph roads {\n".to_vec();
    let nodes = (size as u64 / 60).max(8);
    out.extend(fill(size, |out, index| {
        let (from, to) = (index % nodes, random.below(nodes));
        let _ = writeln!(out, "n{from} -> n{to} [len={}];", 1 + random.below(20));
    }));
    out.extend_from_slice(b"}\n");
    out
}

fn sql(random: &mut Random, size: usize) -> Vec<u8> {
    let mut out = b"create table t(id integer primary key, k text, v integer);\nbegin;\n".to_vec();
    out.extend(fill(size, |out, index| {
        let (key, value) = (random.word(), random.below(100_000));
        let _ = writeln!(out, "insert into t values({index},'{key}',{value});");
    }));
    out.extend_from_slice(
        b"commit;\ncreate index i on t(k);\n\
          select k, count(*), sum(v), max(v) from t group by k order by 3 desc;\n\
          select a.k, b.v from t a join t b on a.id = b.v limit 20;\n\
          update t set v = v * 2 where id % 3 = 0;\ndelete from t where v % 5 = 0;\n\
          vacuum;\nselect count(*), sum(v) from t;\npragma integrity_check;\n",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_gives_the_same_content() {
        for name in [
            "a.txt", "a.bin", "a.num", "a.csv", "a.json", "a.xml", "a.ppm", "a.pgm", "a.wav",
            "a.dot", "a.sql",
        ] {
            let first = generate(name, 3000).unwrap();
            assert_eq!(first, generate(name, 3000).unwrap(), "{name}");
            assert!(
                first.len() >= 2500 && first.len() < 6000,
                "{name}: {}",
                first.len()
            );
        }
    }

    #[test]
    fn another_name_gives_other_content() {
        assert_ne!(
            generate("a.txt", 500).unwrap(),
            generate("b.txt", 500).unwrap()
        );
    }

    #[test]
    fn an_unknown_ending_is_an_error() {
        assert!(generate("a.unknown", 10).is_err());
    }
}
