//! Reading and writing what is in files.

use linux_raw_sys::errno::{EINVAL, ENXIO};

use super::{EFBIG, ENOSPC, Errno, Files, Kind, LARGEST, Machine, PAGE, Sparse, pages};

/// Pages of files stand in the same array as those of the program, behind them.
const FILES: u64 = 1 << 60;

const fn index(node: usize, page: u64) -> u64 {
    FILES | (node as u64) << 40 | page
}

fn page_bytes() -> usize {
    usize::try_from(PAGE).unwrap_or(usize::MAX)
}

/// The parts of so many bytes that lie in one page each: page, place in it, and place in the bytes.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % PAGE).ok()?;
        let end = len.min(done + page_bytes() - within);
        let part = (done < len).then_some((at / PAGE, within, done..end));
        done = end;
        part
    })
}

impl Files<'_> {
    /// Bytes of a file.
    pub(crate) fn size(&self, node: usize) -> u64 {
        match self.node(node).kind {
            Kind::Packed(content) => content.len() as u64,
            Kind::Memory(size) | Kind::Link(size) => size,
            Kind::Fixed(text) => text.len() as u64,
            Kind::Told { bytes, .. } => bytes,
            _ => 0,
        }
    }

    /// The first place from one on that has been written, or that has not.
    pub(crate) fn seek(
        &self,
        store: &Sparse<'_>,
        (node, offset): (usize, u64),
        data: bool,
    ) -> Result<u64, Errno> {
        let size = self.size(node);
        let is_packed = match self.node(node).kind {
            Kind::Packed(_) => true,
            Kind::Memory(_) => false,
            _ => return Err(Errno(EINVAL)),
        };
        if offset >= size {
            return Err(Errno(ENXIO));
        }
        let is_data = |page: u64| is_packed || frame(store, node, page).is_some();
        let page = (offset / PAGE..pages(size)).find(|&page| is_data(page) == data);
        match page {
            Some(page) => Ok((page * PAGE).max(offset)),
            // Behind the end there is a hole.
            None if !data => Ok(size),
            None => Err(Errno(ENXIO)),
        }
    }

    /// Reads a file from there on; how many bytes there were.
    pub(crate) fn read(
        &self,
        store: &Sparse<'_>,
        machine: &impl Machine,
        (node, offset): (usize, u64),
        bytes: &mut [u8],
    ) -> usize {
        let left = self.size(node).saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if len == 0 {
            return 0;
        }
        if let Kind::Packed(content) = self.node(node).kind {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            bytes[..len].copy_from_slice(&content[start..start + len]);
            return len;
        }
        for (page, at, range) in parts(offset, len) {
            let part = &mut bytes[range];
            match frame(store, node, page) {
                Some(frame) => machine.read(frame, at, part),
                None => part.fill(0),
            }
        }
        len
    }

    /// Writes a file from there on.
    pub(crate) fn write(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        (node, offset): (usize, u64),
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let end = offset
            .checked_add(bytes.len() as u64)
            .filter(|&end| end <= LARGEST);
        let end = end.ok_or(Errno(EFBIG))?;
        self.own(store, machine, node)?;
        if end > self.size(node) {
            self.clean_tail(store, machine, node);
            self.resized(node);
        }
        self.put(store, machine, (node, offset), bytes)?;
        let size = self.size(node).max(end);
        self.nodes[node].kind = Kind::Memory(size);
        self.touch(node);
        self.size_changed(node, size);
        Ok(())
    }

    /// A file of the bundle becomes one in memory.
    pub(crate) fn own(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        node: usize,
    ) -> Result<(), Errno> {
        if let Kind::Packed(content) = self.node(node).kind {
            self.put(store, machine, (node, 0), content)?;
            self.nodes[node].kind = Kind::Memory(content.len() as u64);
        }
        Ok(())
    }

    /// Gives a file another size. What is new of it reads as zeroes.
    pub(crate) fn truncate(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        node: usize,
        size: u64,
    ) -> Result<(), Errno> {
        if size > LARGEST {
            return Err(Errno(EFBIG));
        }
        match self.node(node).kind {
            Kind::Packed(_) if size == 0 => self.nodes[node].kind = Kind::Memory(0),
            Kind::Packed(_) => self.own(store, machine, node)?,
            _ => {}
        }
        let (Kind::Memory(old) | Kind::Link(old) | Kind::Told { bytes: old, .. }) =
            self.node(node).kind
        else {
            return Ok(());
        };
        if size > old {
            self.clean_tail(store, machine, node);
        }
        self.resized(node);
        for page in pages(size)..pages(old) {
            if let Some(frame) = frame(store, node, page) {
                let own = alias(store, node, page);
                if own == 0 || machine.unshare(own) {
                    machine.give_back(frame);
                }
                // There is room for what is there.
                let _ = store.set(index(node, page), 0);
                self.page_goes(node);
            }
        }
        let within = usize::try_from(size % PAGE).unwrap_or(0);
        if let (1.., Some(frame)) = (within, frame(store, node, size / PAGE)) {
            let zeros = [0; 4096];
            machine.write(frame, within, &zeros[within..]);
            self.page_changed(store, node, size / PAGE);
        }
        self.nodes[node].kind = Kind::Memory(size);
        self.touch(node);
        self.size_changed(node, size);
        Ok(())
    }

    /// Writes into the pages of a file, which are taken as they are needed.
    pub(super) fn put(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        (node, offset): (usize, u64),
        bytes: &[u8],
    ) -> Result<(), Errno> {
        for (page, at, range) in parts(offset, bytes.len()) {
            let frame = match frame(store, node, page) {
                Some(frame) => frame,
                None => self.take_page(store, machine, node, page)?,
            };
            machine.write(frame, at, &bytes[range]);
            self.page_changed(store, node, page);
        }
        Ok(())
    }

    /// A frame for a page of a file that has none.
    pub(super) fn take_page(
        &mut self,
        store: &mut Sparse<'_>,
        machine: &mut impl Machine,
        node: usize,
        page: u64,
    ) -> Result<u32, Errno> {
        self.page_comes(node)?;
        let frame = machine.take().filter(|&frame| {
            let word = u64::from(frame) + 1;
            let there_is_room = store.set(index(node, page), word).is_some();
            if !there_is_room {
                machine.give_back(frame);
            }
            there_is_room
        });
        if frame.is_none() {
            self.page_goes(node);
        }
        frame.ok_or(Errno(ENOSPC))
    }
}

/// In the word of a page: its frame, and where the file's own alias of that stands, if it is
/// shared.
const FRAME: u64 = 0xffff_ffff;
const ALIAS_BITS: u32 = 48;
/// In the word of a page: the disk does not have it as it is.
const CHANGED: u64 = 1 << 40;

/// Notes of a page that is there whether the disk has it.
pub(super) fn set_changed(store: &mut Sparse<'_>, node: usize, page: u64, changed: bool) {
    let word = store.get(index(node, page)) & !CHANGED;
    if word != 0 {
        // There is room for what is there.
        let _ = store.set(
            index(node, page),
            if changed { word | CHANGED } else { word },
        );
    }
}

/// The file's alias of a page, or 0.
pub(super) fn alias(store: &Sparse<'_>, node: usize, page: u64) -> u16 {
    u16::try_from(store.get(index(node, page)) >> ALIAS_BITS).unwrap_or(0)
}

/// Notes that, of a page that is there.
pub(super) fn set_alias(store: &mut Sparse<'_>, node: usize, page: u64, alias: u16) {
    let word = store.get(index(node, page)) & (FRAME | CHANGED);
    // There is room for what is there.
    let _ = store.set(index(node, page), word | u64::from(alias) << ALIAS_BITS);
}

/// Is there a page that the disk does not have as it is?
pub(super) fn is_changed(store: &Sparse<'_>, node: usize, page: u64) -> bool {
    store.get(index(node, page)) & CHANGED != 0
}

/// The frame of a page of a file.
pub(super) fn frame(store: &Sparse<'_>, node: usize, page: u64) -> Option<u32> {
    u32::try_from((store.get(index(node, page)) & FRAME).checked_sub(1)?).ok()
}
