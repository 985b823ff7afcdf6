//! Executing single instructions of a stopped replica.
//!
//! The flag by which the processor stops after each instruction shows in what `pushf` stores. The
//! `popf` that belongs to it would set it again when nobody steps any more, and the replica would
//! die of a trap that is the lab's. So it is taken out of what was stored. And once a `popf` was
//! stepped over, the kernel takes the flag for the program's own and leaves it; so it is cleared
//! after the last step, unless it was set before the first.

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use crate::inject::{Miss, Seized};

/// `pushf`.
const PUSHF: u8 = 0x9c;
/// The trap flag.
const TF: u64 = 1 << 8;

impl Seized {
    /// Has it execute so many instructions; one to which a signal comes is that handler's first.
    pub(crate) fn step(&mut self, instructions: u64) -> Result<(), Miss> {
        let own = ptrace::getregs(self.pid)?.eflags & TF;
        for _ in 0..instructions {
            let stores = self.pending.is_none() && self.is_at_pushf()?;
            ptrace::step(self.pid, self.pending.take())?;
            if let WaitStatus::Stopped(_, Signal::SIGTRAP) = self.wait()? {
                self.pending = None;
                if stores {
                    self.clear_stored()?;
                }
            }
        }
        let mut registers = ptrace::getregs(self.pid)?;
        registers.eflags = registers.eflags & !TF | own;
        Ok(ptrace::setregs(self.pid, registers)?)
    }

    fn is_at_pushf(&self) -> Result<bool, Miss> {
        let at = ptrace::getregs(self.pid)?.rip;
        // What cannot be read is not executed either.
        let word = ptrace::read(self.pid, at as ptrace::AddressType);
        Ok(word.is_ok_and(|word| word.to_le_bytes()[0] == PUSHF))
    }

    /// Takes the flag out of the word at the stack pointer.
    fn clear_stored(&self) -> Result<(), Miss> {
        let at = ptrace::getregs(self.pid)?.rsp as ptrace::AddressType;
        let stored = ptrace::read(self.pid, at)?;
        Ok(ptrace::write(self.pid, at, stored & !TF.cast_signed())?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use crate::inject::Seized;

    /// Stores and loads its flags for some seconds.
    const SOURCE: &str = "#include <unistd.h>
int main(void) {
  if (write(1, \"x\", 1) != 1) return 1;
  for (int i = 0; i < 100000000; i++) __asm__ volatile(\"pushfq; popfq\" ::: \"memory\", \"cc\");
  return 0;
}";

    #[test]
    fn who_was_stepped_over_what_stores_the_flags_runs_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let [source, program] = ["flags.c", "flags"].map(|name| folder.path().join(name));
        std::fs::write(&source, SOURCE).expect("room");
        let mut compiler = Command::new("cc");
        let compiled = compiler
            .args(["-O1", "-mno-red-zone", "-o"])
            .args([&program, &source]);
        assert!(compiled.status().expect("a compiler").success());
        let mut victim = Command::new(&program);
        let mut victim = victim.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut output = victim.stdout.take().expect("a pipe");
        output.read_exact(&mut [0]).expect("its word");
        let pid = i32::try_from(victim.id()).expect("a pid");
        for instructions in 50..54 {
            let mut seized = Seized::stop(pid).expect("it runs");
            seized.step(instructions).expect("it goes on");
        }
        let ended = victim.wait().expect("it is a child");
        assert!(ended.success(), "{ended}");
    }
}
