//! Addresses of sockets, as programs give them and are told.

use linux_raw_sys::errno::{EAFNOSUPPORT, EFAULT, EINVAL};
use linux_raw_sys::net::{AF_INET, AF_UNIX};

use crate::linux::files::Kind;
use crate::linux::sockets::{LABEL, Label, Name};
use crate::linux::{Errno, Machine, Process};

/// Bytes of an address of IPv4, and of the longest there is.
const IPV4_BYTES: u64 = 16;
const LONGEST: usize = 2 + LABEL + 1;

impl<M: Machine> Process<'_, M> {
    /// An address that a program gives.
    ///
    /// # Errors
    /// If it is of another family than the socket, or none at all.
    pub(super) fn address(&self, family: u32, place: u64, bytes: u64) -> Result<Name, Errno> {
        let bytes = usize::try_from(bytes & 0xffff_ffff).unwrap_or(usize::MAX);
        let mut given = [0; LONGEST - 1];
        let given = given.get_mut(..bytes).ok_or(Errno(EINVAL))?;
        self.read(place, given)?;
        let (kind, rest) = given.split_at_checked(2).ok_or(Errno(EINVAL))?;
        match u32::from(u16::from_le_bytes([kind[0], kind[1]])) {
            other if other != family => Err(Errno(match family {
                AF_INET => EAFNOSUPPORT,
                _ => EINVAL,
            })),
            AF_INET if given.len() as u64 >= IPV4_BYTES => {
                let [high, low, a, b, c, d] = *rest.first_chunk().ok_or(Errno(EINVAL))?;
                Ok(Name::Inet(([a, b, c, d], u16::from_be_bytes([high, low]))))
            }
            AF_UNIX => self.label(rest).map(Name::Unix),
            _ => Err(Errno(EINVAL)),
        }
    }

    /// The name in the machine that these bytes are, with the number of its file, if that is there.
    fn label(&self, bytes: &[u8]) -> Result<Label, Errno> {
        if bytes.first() == Some(&0) {
            return Label::new(bytes);
        }
        let end = bytes.iter().position(|&byte| byte == 0);
        let bytes = &bytes[..end.unwrap_or(bytes.len())];
        if bytes.is_empty() {
            return Err(Errno(EINVAL));
        }
        let mut label = Label::new(bytes)?;
        let path = self.meant(self.files.folder(), bytes, true)?;
        let node = self.files.find(path);
        if let Some(Kind::Socket(file)) = node.map(|node| self.files.node(node).kind) {
            label.file = file;
        }
        Ok(label)
    }

    /// Tells a program an address, as far as it has room.
    pub(super) fn tell_address(&mut self, name: &Name, to: u64, room: u64) -> Result<(), Errno> {
        let mut words = [0; 4];
        self.read(room, &mut words)?;
        let has = u64::from(u32::from_le_bytes(words));
        if has >> 31 != 0 {
            return Err(Errno(EINVAL));
        }
        let mut told = [0; LONGEST];
        told[..2].copy_from_slice(&name.family().to_le_bytes()[..2]);
        let len = match name {
            Name::Inet((address, port)) => {
                told[2..4].copy_from_slice(&port.to_be_bytes());
                told[4..8].copy_from_slice(address);
                IPV4_BYTES
            }
            Name::Unix(label) => {
                let bytes = label.bytes();
                told[2..2 + bytes.len()].copy_from_slice(bytes);
                // That of a file is told with a zero byte at its end.
                let ends = !bytes.is_empty() && !label.is_abstract();
                2 + bytes.len() as u64 + u64::from(ends)
            }
        };
        let part = usize::try_from(has.min(len)).map_err(|_| Errno(EFAULT))?;
        self.write(to, &told[..part])?;
        self.write(room, &len.to_le_bytes()[..4])
    }
}
