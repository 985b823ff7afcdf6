//! The description of a guest's board (a flattened device tree, version 17), as Linux reads it.

use rcoe_abi::guest::{CONTROLLER, MEMORY, SERIAL};

/// Words of the structure: a node begins, ends, a property, the end of all.
const BEGIN: u32 = 1;
const END: u32 = 2;
const PROPERTY: u32 = 3;
const LAST: u32 = 9;

/// Bytes of the header, and of the list of reserved memory, which has its end only.
const HEADER: u32 = 40;
const RESERVED: u32 = 16;

/// What nodes are referred to by.
const INTERRUPTS: u32 = 1;
const CLOCK: u32 = 2;

/// Kinds of interrupts: shared ones, and a processor's own; as long as a line is up.
const SHARED: u32 = 0;
const OWN: u32 = 1;
const LEVEL: u32 = 4;

/// A tree that is being written.
#[derive(Default)]
struct Tree {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Tree {
    fn word(&mut self, word: u32) {
        self.structure.extend(word.to_be_bytes());
    }

    fn pad(&mut self) {
        let len = self.structure.len().next_multiple_of(4);
        self.structure.resize(len, 0);
    }

    fn node(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        self.word(BEGIN);
        self.structure.extend(name.bytes().chain([0]));
        self.pad();
        content(self);
        self.word(END);
    }

    fn bytes(&mut self, name: &str, value: &[u8]) {
        let at = self.strings.len();
        self.strings.extend(name.bytes().chain([0]));
        self.word(PROPERTY);
        self.word(length(value.len()));
        self.word(length(at));
        self.structure.extend(value);
        self.pad();
    }

    fn text(&mut self, name: &str, value: &str) {
        let bytes: Vec<u8> = value.bytes().chain([0]).collect();
        self.bytes(name, &bytes);
    }

    fn cells(&mut self, name: &str, cells: &[u32]) {
        let bytes: Vec<u8> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
        self.bytes(name, &bytes);
    }

    /// Numbers of two cells each.
    fn wide(&mut self, name: &str, numbers: &[u64]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_be_bytes()).collect();
        self.bytes(name, &bytes);
    }

    /// The whole, with its header.
    fn finish(mut self) -> Vec<u8> {
        self.word(LAST);
        let (structure, strings) = (length(self.structure.len()), length(self.strings.len()));
        let behind = HEADER + RESERVED;
        let header = [
            0xd00d_feed,
            behind + structure + strings,
            behind,
            behind + structure,
            HEADER,
            17,
            16,
            0,
            strings,
            structure,
        ];
        let header = header.into_iter().flat_map(u32::to_be_bytes);
        let reserved = [0; RESERVED as usize];
        header
            .chain(reserved)
            .chain(self.structure)
            .chain(self.strings)
            .collect()
    }
}

fn length(len: usize) -> u32 {
    u32::try_from(len).expect("a tree is small")
}

/// The board: so many bytes of memory, the kernel's command line, and where the first files are.
pub(super) fn describe(memory: u64, line: &str, files: Option<(u64, u64)>) -> Vec<u8> {
    let mut tree = Tree::default();
    tree.node("", |root| {
        root.text("compatible", "linux,dummy-virt");
        root.cells("#address-cells", &[2]);
        root.cells("#size-cells", &[2]);
        root.cells("interrupt-parent", &[INTERRUPTS]);
        root.node("chosen", |it| {
            it.text("bootargs", line);
            it.text("stdout-path", &format!("/serial@{SERIAL:x}"));
            if let Some((start, end)) = files {
                it.wide("linux,initrd-start", &[start]);
                it.wide("linux,initrd-end", &[end]);
            }
        });
        root.node(&format!("memory@{MEMORY:x}"), |it| {
            it.text("device_type", "memory");
            it.wide("reg", &[MEMORY, memory]);
        });
        processor(root);
        devices(root);
    });
    tree.finish()
}

fn processor(root: &mut Tree) {
    root.node("cpus", |cpus| {
        cpus.cells("#address-cells", &[1]);
        cpus.cells("#size-cells", &[0]);
        cpus.node("cpu@0", |it| {
            it.text("device_type", "cpu");
            it.text("compatible", "arm,cortex-a76");
            it.cells("reg", &[0]);
        });
    });
    root.node("psci", |it| {
        it.bytes("compatible", b"arm,psci-1.0\0arm,psci-0.2\0");
        it.text("method", "smc");
    });
    // The secure physical timer, which there is none of, then the physical one. The virtual one is
    // left out, so that nobody waits for it.
    root.node("timer", |it| {
        it.text("compatible", "arm,armv8-timer");
        it.cells("interrupts", &[OWN, 13, LEVEL, OWN, 14, LEVEL]);
    });
}

fn devices(root: &mut Tree) {
    root.node(&format!("interrupt-controller@{CONTROLLER:x}"), |it| {
        it.text("compatible", "arm,cortex-a15-gic");
        it.cells("#interrupt-cells", &[3]);
        it.cells("#address-cells", &[0]);
        it.bytes("interrupt-controller", &[]);
        it.wide(
            "reg",
            &[CONTROLLER, 0x1_0000, CONTROLLER + 0x1_0000, 0x1_0000],
        );
        it.cells("phandle", &[INTERRUPTS]);
    });
    root.node("clock", |it| {
        it.text("compatible", "fixed-clock");
        it.cells("#clock-cells", &[0]);
        it.cells("clock-frequency", &[24_000_000]);
        it.cells("phandle", &[CLOCK]);
    });
    root.node(&format!("serial@{SERIAL:x}"), |it| {
        it.bytes("compatible", b"arm,pl011\0arm,primecell\0");
        it.wide("reg", &[SERIAL, 0x1000]);
        it.cells("interrupts", &[SHARED, 1, LEVEL]);
        it.cells("clocks", &[CLOCK, CLOCK]);
        it.bytes("clock-names", b"uartclk\0apb_pclk\0");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word at a place, the highest byte first.
    fn word(tree: &[u8], at: usize) -> usize {
        u32::from_be_bytes(tree[at..at + 4].try_into().unwrap()) as usize
    }

    /// The value of the first property of this name.
    fn property<'t>(tree: &'t [u8], name: &str) -> Option<&'t [u8]> {
        let (structure, strings) = (word(tree, 8), word(tree, 12));
        let mut at = structure;
        loop {
            match u32::try_from(word(tree, at)).unwrap() {
                BEGIN => {
                    let len = tree[at + 4..].iter().position(|&byte| byte == 0).unwrap();
                    at += 4 + (len + 1).next_multiple_of(4);
                }
                END => at += 4,
                PROPERTY => {
                    let (len, string) = (word(tree, at + 4), strings + word(tree, at + 8));
                    let value = &tree[at + 12..at + 12 + len];
                    if tree[string..].starts_with(&[name.as_bytes(), &[0]].concat()) {
                        return Some(value);
                    }
                    at += 12 + len.next_multiple_of(4);
                }
                LAST => return None,
                other => panic!("no part of a structure: {other}"),
            }
        }
    }

    #[test]
    fn a_tree_says_where_everything_is() {
        let tree = describe(
            64 << 20,
            "console=ttyAMA0",
            Some((0x4400_0000, 0x4400_1234)),
        );
        assert_eq!(word(&tree, 0), 0xd00d_feed);
        assert_eq!(word(&tree, 4), tree.len());
        assert_eq!(property(&tree, "bootargs"), Some(&b"console=ttyAMA0\0"[..]));
        assert_eq!(
            property(&tree, "stdout-path"),
            Some(&b"/serial@9000000\0"[..])
        );
        let end = property(&tree, "linux,initrd-end").unwrap();
        assert_eq!(end, 0x4400_1234_u64.to_be_bytes());
        let memory = [MEMORY, 64 << 20].map(u64::to_be_bytes).concat();
        assert_eq!(property(&tree, "reg"), Some(&memory[..]));
        assert_eq!(property(&tree, "method"), Some(&b"smc\0"[..]));
        assert_eq!(property(&tree, "nothing"), None);
    }

    #[test]
    fn its_length_does_not_depend_on_how_much_memory_there_is() {
        let len = |memory| describe(memory, "", None).len();
        assert_eq!(len(0), len(u64::MAX));
        assert_eq!(property(&describe(0, "", None), "linux,initrd-end"), None);
    }
}
