//! What a dynamic program or a library says that it needs of others.

use object::read::elf::{Dyn as _, ProgramHeader as _};
use object::{Endianness, elf};

use super::{Read, open};

/// What a file says that it needs of others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Needs {
    /// Names of libraries.
    pub(crate) libraries: Vec<String>,
    /// Its own name as a library.
    pub(crate) name: Option<String>,
    /// Folders of libraries: for those that it needs, and for all that those need in turn.
    pub(crate) run_path: Option<String>,
    /// See there.
    pub(crate) inherited_path: Option<String>,
}

/// What a file says that it needs. Whatever cannot be read is not said.
pub(crate) fn needs(data: &[u8]) -> Needs {
    let mut needs = Needs::default();
    let Some(file) = open(data) else {
        return needs;
    };
    let entries = file.entries();
    let strings = file.strings(entries).unwrap_or(&[]);
    for entry in entries {
        let at = usize::try_from(entry.val(file.endian)).unwrap_or(usize::MAX);
        let text = || text(strings.get(at..)?);
        match entry.tag(file.endian) {
            elf::DT_NEEDED => needs.libraries.extend(text()),
            elf::DT_SONAME => needs.name = text(),
            elf::DT_RUNPATH => needs.run_path = text(),
            elf::DT_RPATH => needs.inherited_path = text(),
            _ => {}
        }
    }
    needs
}

/// The string that begins there, if it has an end.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

impl Read<'_> {
    /// What there is for a dynamic loader.
    fn entries(&self) -> &[elf::Dyn64<Endianness>] {
        let header = self.of_type(elf::PT_DYNAMIC).next();
        let entries = header.and_then(|it| it.dynamic(self.endian, self.data).ok()?);
        let entries = entries.unwrap_or(&[]);
        let end = |it: &elf::Dyn64<Endianness>| it.tag(self.endian) == elf::DT_NULL;
        &entries[..entries.iter().position(end).unwrap_or(entries.len())]
    }

    /// The strings that those entries mean.
    fn strings(&self, entries: &[elf::Dyn64<Endianness>]) -> Option<&[u8]> {
        let mut all = entries.iter();
        let table = all.find(|it| it.tag(self.endian) == elf::DT_STRTAB)?;
        let address = table.val(self.endian);
        self.of_type(elf::PT_LOAD).find_map(|it| {
            let within = address.checked_sub(it.p_vaddr(self.endian))?;
            let content = it.data(self.endian, self.data).ok()?;
            content.get(usize::try_from(within).ok()?..)
        })
    }
}
