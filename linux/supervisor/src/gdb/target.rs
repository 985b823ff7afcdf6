//! The replicas as gdb's protocol wants a program: what it can ask, by the traits of `gdbstub`.
//!
//! Contract: what is read is that of the replica that is shown, and compared with the others; what
//! is written is written in all. Code is shown as it is in its file, without the agent's changes
//! and the debugger's traps, and is not written.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use gdbstub::common::{Pid, Signal};
use gdbstub::target::ext::auxv::{Auxv, AuxvOps};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::singlethread::{
    SingleThreadBase, SingleThreadResume, SingleThreadResumeOps, SingleThreadSingleStep,
    SingleThreadSingleStepOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, SwBreakpoint, SwBreakpointOps,
};
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps, outputln};
use gdbstub::target::{Target, TargetError, TargetResult};

use super::differ::Depth;
use super::registers::{Amd64, Registers};
use super::replicas::Replicas;
use super::tracee::{Tracee, is_agent};
use crate::scene::{Area, areas};

/// An address that the program does not have.
const FAULT: u8 = 14;
/// What may not be written.
const REFUSED: u8 = 1;

const COMMANDS: &str = "rcoe differ    what differs between the replicas: registers, memory
rcoe replicas  where each replica stands";

impl Target for Replicas {
    type Arch = Amd64;
    type Error = io::Error;

    fn base_ops(&mut self) -> BaseOps<'_, Amd64, io::Error> {
        BaseOps::SingleThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        Some(self)
    }
}

impl SingleThreadBase for Replicas {
    fn read_registers(&mut self, registers: &mut Registers) -> TargetResult<(), Self> {
        let shown = self.shown().ok_or(TargetError::NonFatal)?;
        *registers = shown.registers().map_err(io::Error::from)?;
        Ok(())
    }

    fn write_registers(&mut self, registers: &Registers) -> TargetResult<(), Self> {
        for tracee in self.living() {
            tracee.set_registers(registers).map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8]) -> TargetResult<usize, Self> {
        let shown = self.shown().ok_or(TargetError::NonFatal)?;
        let read = match is_agent(start) {
            true => 0,
            false => self.read_program(shown, start, data),
        };
        if read == 0 {
            return Err(TargetError::Errno(FAULT));
        }
        let differs = |it: &&Tracee| {
            let mut other = vec![0; read];
            self.read_program(it, start, &mut other) != read || other != data[..read]
        };
        let others: Vec<usize> = self.living().filter(differs).map(|it| it.index).collect();
        if let Some(first) = others.first() {
            let text = format!("what was read at {start:#x} is not the same in replica {first}");
            if !self.notes.contains(&text) {
                self.notes.push(text);
            }
        }
        Ok(read)
    }

    fn write_addrs(&mut self, start: u64, data: &[u8]) -> TargetResult<(), Self> {
        let end = start.saturating_add(data.len() as u64);
        let may = self
            .shown()
            .map(|it| areas(process(it)))
            .unwrap_or_default();
        let refused = |it: &Area| {
            let code = it.may.contains('x') || is_agent(it.start) || it.may.ends_with('s');
            it.start < end && start < it.end && code
        };
        if may.iter().any(refused) {
            self.notes.push(format!(
                "not written at {start:#x}: code, and memory that processes share, is not written"
            ));
            return Err(TargetError::Errno(REFUSED));
        }
        for tracee in self.living() {
            tracee.write(start, data)?;
        }
        Ok(())
    }

    fn support_resume(&mut self) -> Option<SingleThreadResumeOps<'_, Self>> {
        Some(self)
    }
}

impl Replicas {
    /// Reads the program's memory of a replica, code as its file has it.
    fn read_program(&self, tracee: &Tracee, start: u64, data: &mut [u8]) -> usize {
        let read = tracee.read(start, data);
        let end = start.saturating_add(read as u64);
        for (&at, &byte) in self.breakpoints.range(start..end) {
            if let Some(cell) = usize::try_from(at - start)
                .ok()
                .and_then(|at| data.get_mut(at))
            {
                *cell = byte;
            }
        }
        for area in areas(process(tracee)) {
            let (from, to) = (area.start.max(start), area.end.min(end));
            if from < to && area.may == "r-xp" && area.is_file() {
                let of = |at: u64| usize::try_from(at - start).unwrap_or(0);
                // What the file does not tell stays as it is in memory.
                let _ = read_file(&area, from, &mut data[of(from)..of(to)]);
            }
        }
        read
    }
}

/// Reads what is mapped of a file, if its name is still that of what is mapped.
fn read_file(area: &Area, at: u64, data: &mut [u8]) -> io::Result<()> {
    let file = File::open(&area.name)?;
    if file.metadata()?.ino() != area.inode {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut bytes = vec![0; data.len()];
    file.read_exact_at(&mut bytes, area.offset + (at - area.start))?;
    data.copy_from_slice(&bytes);
    Ok(())
}

const fn process(tracee: &Tracee) -> u32 {
    tracee.pid.as_raw().cast_unsigned()
}

impl SingleThreadResume for Replicas {
    fn resume(&mut self, signal: Option<Signal>) -> Result<(), io::Error> {
        self.refuse_signal(signal);
        self.go_on();
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<SingleThreadSingleStepOps<'_, Self>> {
        Some(self)
    }
}

impl SingleThreadSingleStep for Replicas {
    fn step(&mut self, signal: Option<Signal>) -> Result<(), io::Error> {
        self.refuse_signal(signal);
        Self::step(self);
        Ok(())
    }
}

impl Replicas {
    fn refuse_signal(&mut self, signal: Option<Signal>) {
        let fault = self.shown().map_or(0, Tracee::fault);
        match signal {
            Some(_) if fault != 0 => {}
            Some(Signal(number)) => self.notes.push(format!(
                "gdb's signal {number} is not given to the program: send it to rcoe"
            )),
            None if fault != 0 => {
                let text = format!("signal {fault} is given to the program all the same");
                self.notes.push(text);
            }
            None => {}
        }
    }
}

impl Breakpoints for Replicas {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }
}

impl SwBreakpoint for Replicas {
    fn add_sw_breakpoint(&mut self, at: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.add(at))
    }

    fn remove_sw_breakpoint(&mut self, at: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.remove(at))
    }
}

impl MonitorCmd for Replicas {
    fn handle_monitor_cmd(
        &mut self,
        command: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), io::Error> {
        let command = String::from_utf8_lossy(command);
        let words: Vec<&str> = command.split_ascii_whitespace().collect();
        let lines = match words[..] {
            ["rcoe", "differ"] => self.differences(Depth::All),
            ["rcoe", "replicas"] => self.places(),
            _ => vec![COMMANDS.to_owned()],
        };
        if lines.is_empty() {
            outputln!(out, "the replicas are alike");
        }
        for line in lines {
            outputln!(out, "{line}");
        }
        Ok(())
    }
}

impl Auxv for Replicas {
    fn get_auxv(&self, offset: u64, length: usize, buffer: &mut [u8]) -> TargetResult<usize, Self> {
        Ok(piece(&self.auxiliary, offset, length, buffer))
    }
}

impl ExecFile for Replicas {
    fn get_exec_file(
        &self,
        _pid: Option<Pid>,
        offset: u64,
        length: usize,
        buffer: &mut [u8],
    ) -> TargetResult<usize, Self> {
        Ok(piece(&self.program, offset, length, buffer))
    }
}

/// Copies a piece of something; returns how many bytes there were.
fn piece(all: &[u8], offset: u64, length: usize, buffer: &mut [u8]) -> usize {
    let from = usize::try_from(offset).map_or(all.len(), |at| at.min(all.len()));
    let count = length.min(buffer.len()).min(all.len() - from);
    buffer[..count].copy_from_slice(&all[from..from + count]);
    count
}
