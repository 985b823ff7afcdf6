//! The files that were mapped: what their addresses are called, and how calls nest in them.
//!
//! Contract: a file that is another one by its build id is not asked, as its lines would be wrong.
//! Everything is found on this machine; nothing is fetched.
//!
//! Not covered: code of no file (generated code, the vDSO).

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ReadCache};
use serde::Serialize;

use super::read::{Mapping, Registers, Scene, Seen};

/// Most frames that are told of.
const FRAMES: usize = 64;

/// One function that had been called and had not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Frame {
    pub(super) address: String,
    /// The file it belongs to.
    pub(super) module: Option<String>,
    pub(super) function: Option<String>,
    pub(super) file: Option<String>,
    pub(super) line: Option<u32>,
    /// Whether it was compiled into its caller.
    pub(super) inlined: bool,
}

/// What is known of a mapped file.
struct Mapped {
    /// What is added to its own addresses.
    bias: u64,
    names: Option<Loader>,
    lines: Option<Loader>,
}

/// All files of a scene.
pub(super) struct Files {
    mappings: Vec<Mapping>,
    known: HashMap<String, Mapped>,
    unwinder: UnwinderX86_64<Vec<u8>>,
    /// What is to be said of files that could not be used.
    pub(super) remarks: Vec<String>,
}

impl Files {
    /// Looks at the files of a scene that any address in it lies in. Debug files are looked for
    /// below `debug`.
    pub(super) fn new(scene: &Scene, debug: &Path) -> Self {
        let mut files = Self {
            mappings: scene.mappings.clone(),
            known: HashMap::new(),
            unwinder: UnwinderX86_64::new(),
            remarks: Vec::new(),
        };
        let used = |mapping: &&Mapping| scene.replicas.iter().any(|seen| names(seen, mapping));
        for mapping in scene.mappings.iter().filter(used) {
            if files.known.contains_key(&mapping.file) {
                continue;
            }
            match files.open(mapping, debug) {
                Ok(mapped) => {
                    files.known.insert(mapping.file.clone(), mapped);
                }
                Err(why) => {
                    let remark = format!("{}: {why}", mapping.file);
                    if !files.remarks.contains(&remark) {
                        files.remarks.push(remark);
                    }
                }
            }
        }
        files
    }

    fn open(&mut self, mapping: &Mapping, debug: &Path) -> Result<Mapped, String> {
        let path = Path::new(&mapping.file);
        let file = File::open(path).map_err(|error| error.to_string())?;
        let data = ReadCache::new(file);
        let object = object::File::parse(&data).map_err(|error| error.to_string())?;
        let id = object.build_id().ok().flatten().map(hexadecimal);
        if id != mapping.build_id {
            return Err("has changed since the run, so its lines are not told".into());
        }
        let segment = object.segments().find(|it| {
            let (offset, bytes) = it.file_range();
            (offset & !0xfff..offset + bytes).contains(&mapping.offset.0)
        });
        let segment = segment.ok_or("is not mapped as its headers say")?;
        let linked = segment.address().wrapping_sub(segment.file_range().0);
        let bias = mapping
            .start
            .0
            .wrapping_sub(mapping.offset.0.wrapping_add(linked));
        self.unwinder
            .add_module(self.module(mapping, bias, &object));
        let separate = separate(path, id.as_deref(), &object, debug);
        Ok(Mapped {
            bias,
            names: Loader::new(path).ok(),
            lines: separate.and_then(|it| Loader::new(it).ok()),
        })
    }

    fn module<'a>(
        &self,
        mapping: &Mapping,
        bias: u64,
        object: &impl object::Object<'a>,
    ) -> Module<Vec<u8>> {
        let range = |name: &str| {
            let section = object.section_by_name(name)?;
            Some(section.address()..section.address() + section.size())
        };
        let bytes = |name: &str| {
            let section = object.section_by_name(name)?;
            Some(section.uncompressed_data().ok()?.into_owned())
        };
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            text: bytes(".text"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            got_svma: range(".got"),
            debug_frame: bytes(".debug_frame"),
            ..Default::default()
        };
        let of_it = self.mappings.iter().filter(|it| it.file == mapping.file);
        let start = of_it.clone().map(|it| it.start.0).min().unwrap_or(0);
        let end = of_it.map(|it| it.end.0).max().unwrap_or(0);
        Module::new(mapping.file.clone(), start..end, bias, sections)
    }

    /// Who had called whom, the innermost first.
    pub(super) fn frames(&self, seen: &Seen) -> Vec<Frame> {
        let Some(Registers { rip, rsp, rbp }) = seen.registers else {
            return Vec::new();
        };
        let stack: HashMap<u64, u64> = seen.stack.iter().map(|(at, word)| (*at, word.0)).collect();
        // Words in between that are no addresses are not told, and nobody needs them.
        let last = stack.keys().max().copied().unwrap_or(0);
        let mut word = |address: u64| {
            let at = address
                .checked_sub(rsp.0)
                .filter(|at| *at <= last)
                .ok_or(())?;
            Ok(stack.get(&at).copied().unwrap_or(0))
        };
        let registers = UnwindRegsX86_64::new(rip.0, rsp.0, rbp.0);
        let mut cache = CacheX86_64::<_>::new();
        let mut steps = self
            .unwinder
            .iter_frames(rip.0, registers, &mut cache, &mut word);
        let mut frames = Vec::new();
        // The call stands before the address at which it goes on.
        let first = u64::from(seen.call.is_some());
        while let Ok(Some(frame)) = steps.next() {
            let address = match frame {
                FrameAddress::InstructionPointer(address) => address.wrapping_sub(first),
                FrameAddress::ReturnAddress(address) => address.get().wrapping_sub(1),
            };
            frames.extend(self.at(address, frame.address()));
            if frames.len() >= FRAMES {
                break;
            }
        }
        frames
    }

    /// The functions at an address: several, if some were compiled into others.
    fn at(&self, address: u64, told: u64) -> Vec<Frame> {
        let mut mappings = self.mappings.iter();
        let mapping = mappings.find(|it| (it.start.0..it.end.0).contains(&address));
        let module = mapping.map(|it| it.file.clone());
        let bare = Frame {
            address: format!("{told:#x}"),
            module: module.clone(),
            function: None,
            file: None,
            line: None,
            inlined: false,
        };
        let Some(mapped) = module.and_then(|it| self.known.get(&it)) else {
            return vec![bare];
        };
        let probe = address.wrapping_sub(mapped.bias);
        for loader in [&mapped.lines, &mapped.names].into_iter().flatten() {
            let frames = resolve(loader, probe, &bare);
            if !frames.is_empty() {
                return frames;
            }
        }
        let mut loaders = [&mapped.names, &mapped.lines].into_iter().flatten();
        let function = loaders.find_map(|it| it.find_symbol(probe).map(demangled));
        vec![Frame { function, ..bare }]
    }
}

/// Whether a replica's scene has an address in this mapping.
fn names(seen: &Seen, mapping: &Mapping) -> bool {
    let words = seen.stack.iter().map(|(_, word)| *word);
    let all = words.chain(seen.registers.map(|it| it.rip));
    all.into_iter()
        .any(|word| mapping.start <= word && word < mapping.end)
}

/// What the debug information of a file says of one of its addresses.
fn resolve(loader: &Loader, probe: u64, bare: &Frame) -> Vec<Frame> {
    let Ok(mut all) = loader.find_frames(probe) else {
        return Vec::new();
    };
    let mut frames: Vec<Frame> = Vec::new();
    while let Ok(Some(found)) = all.next() {
        let name = found.function.as_ref();
        let name = name.and_then(|it| it.demangle().ok().map(|name| name.into_owned()));
        let line = found.location.as_ref().and_then(|it| it.line);
        frames.push(Frame {
            function: name,
            file: found.location.and_then(|it| it.file.map(str::to_owned)),
            line,
            inlined: true,
            ..bare.clone()
        });
    }
    if let Some(outermost) = frames.last_mut() {
        outermost.inlined = false;
    }
    frames.retain(|it| it.function.is_some() || it.line.is_some());
    for frame in frames.iter_mut().filter(|it| it.function.is_none()) {
        frame.function = loader.find_symbol(probe).map(demangled);
    }
    frames
}

fn demangled(name: &str) -> String {
    addr2line::demangle_auto(name.into(), None).into_owned()
}

fn hexadecimal(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file with the debug information of another, if it is on this machine.
fn separate<'a>(
    path: &Path,
    id: Option<&str>,
    object: &impl object::Object<'a>,
    debug: &Path,
) -> Option<PathBuf> {
    let by_id = id.and_then(|id| {
        let (folder, name) = id.split_at_checked(2)?;
        Some(
            debug
                .join(".build-id")
                .join(folder)
                .join(format!("{name}.debug")),
        )
    });
    let name = object.gnu_debuglink().ok().flatten();
    let name = name.map(|(name, _)| String::from_utf8_lossy(name).into_owned());
    let folder = path.parent().unwrap_or(Path::new("/"));
    let by_name = name.into_iter().flat_map(|name| {
        let below = folder.strip_prefix("/").unwrap_or(folder);
        [
            folder.join(&name),
            folder.join(".debug").join(&name),
            debug.join(below).join(&name),
        ]
    });
    let same = |candidate: &PathBuf| candidate != path && id_of(candidate).as_deref() == id;
    by_id.into_iter().chain(by_name).find(same)
}

fn id_of(path: &Path) -> Option<String> {
    let data = ReadCache::new(File::open(path).ok()?);
    let object = object::File::parse(&data).ok()?;
    object.build_id().ok().flatten().map(hexadecimal)
}
