//! The emulator's interface for plugins, version 1, as far as it is used here.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::slice;

use crate::branch::is_branch;

/// A number that the emulator has given this plugin.
type Id = u64;

/// Code that is translated as one.
#[repr(C)]
struct Block(c_void);

/// An instruction of it.
#[repr(C)]
struct Instruction(c_void);

type OnCore = extern "C" fn(Id, c_uint);
type OnBlock = extern "C" fn(Id, *mut Block);
type OnExecution = extern "C" fn(c_uint, *mut c_void);

/// A callback that looks at no registers.
const NO_REGISTERS: c_int = 0;
/// From here on addresses are those of kernels.
const KERNELS: u64 = 1 << 47;

unsafe extern "C" {
    fn qemu_plugin_register_vcpu_init_cb(id: Id, run: OnCore);
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, run: OnBlock);
    fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const Block, at: usize) -> *mut Instruction;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const u8;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        run: OnExecution,
        flags: c_int,
        data: *mut c_void,
    );
}

/// The version of the interface.
#[unsafe(no_mangle)]
static qemu_plugin_version: c_int = 1;

/// The plugin is loaded, with words like `memory=FILE`.
#[unsafe(no_mangle)]
extern "C" fn qemu_plugin_install(
    id: Id,
    _about: *const c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    let words: Option<Vec<&str>> = (0..count)
        // SAFETY: there are so many pointers, each to a string that ends with a zero byte.
        .map(|at| unsafe { CStr::from_ptr(*words.add(at)) }.to_str().ok())
        .collect();
    if !words.is_some_and(|words| crate::install(&words)) {
        return 1;
    }
    // SAFETY: the functions are what the emulator asks for, and stay.
    unsafe {
        qemu_plugin_register_vcpu_init_cb(id, on_core);
        qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    }
    0
}

extern "C" fn on_core(_id: Id, _core: c_uint) {
    crate::begin();
}

/// A block is being translated.
extern "C" fn on_block(_id: Id, block: *mut Block) {
    // SAFETY: the emulator lends a block, and the instructions in it, until this returns.
    unsafe {
        for at in 0..qemu_plugin_tb_n_insns(block) {
            let instruction = qemu_plugin_tb_get_insn(block, at);
            let data = qemu_plugin_insn_data(instruction);
            let code = slice::from_raw_parts(data, qemu_plugin_insn_size(instruction));
            if qemu_plugin_insn_vaddr(instruction) < KERNELS && is_branch(code) {
                let none = core::ptr::null_mut();
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_branch, NO_REGISTERS, none);
            }
        }
    }
}

extern "C" fn on_branch(core: c_uint, _data: *mut c_void) {
    crate::count(core);
}
