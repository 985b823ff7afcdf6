//! The replication part as the objects see it: their trace, their votes, their devices.

use rcoe_abi::layout::PORT_OFF;
use rcoe_core::{Compare, Kind, mix};
use rcoe_kernel_objects::{Memory, Ref, Sphere, kind};

use super::Replicated;
use super::access::{DEVICE, digest_of};
use crate::arch::{self, interrupts};
use crate::report;

impl Sphere for Replicated {
    fn compare(&self) -> Compare {
        self.compare
    }

    fn event(&mut self, kind: u32, value: u64) {
        self.replica.add_event(Kind(kind), value);
        self.progress = 0;
        if self.pause.is_some() {
            self.stand_still();
        }
    }

    fn vote(&mut self) {
        self.votes += 1;
        let (members, began) = (self.replica.members(), arch::cycles());
        let result = self.replica.rendezvous();
        self.go_on(result);
        let events = self.replica.events();
        self.replica.env_mut().recorders.agree(events);
        if self.replica.members() != members {
            // A new primary is one only when the interrupts are its own.
            self.settle();
            report::set_alone(self.members() == 1);
            self.meter.downgraded(arch::cycles() - began);
        }
    }

    fn port_in(&mut self, port: u16, width: u8, repeatable: bool) -> u32 {
        let place = u64::from(port) << 8 | u64::from(width);
        let value = self.input(place, repeatable, || u64::from(arch::port_in(port, width)));
        u32::try_from(value).expect("as wide as a port")
    }

    fn port_out(&mut self, port: u16, width: u8, value: u32, repeatable: bool) {
        if port == PORT_OFF && self.is_primary() {
            self.tell_figures();
        }
        let place = u64::from(port) << 8 | u64::from(width);
        let digest = mix(place) ^ u64::from(value);
        self.output(port.into(), digest, repeatable, || {
            arch::port_out(port, width, value);
        });
    }

    fn port_out_bytes(&mut self, port: u16, bytes: &[u8]) {
        let digest = mix(u64::from(port)) ^ rcoe_kernel_objects::digest(bytes);
        self.output(port.into(), digest, false, || {
            for &byte in bytes {
                arch::port_out(port, 1, u32::from(byte));
            }
        });
    }

    fn device_read(&mut self, place: u64, width: u8, repeatable: bool) -> u64 {
        let where_from = DEVICE | place << 8 | u64::from(width);
        self.input(where_from, repeatable, || arch::device_read(place, width))
    }

    fn device_write(&mut self, place: u64, width: u8, value: u64, repeatable: bool) {
        let where_to = DEVICE | place << 8 | u64::from(width);
        let digest = mix(mix(where_to) ^ value);
        self.output(DEVICE | place, digest, repeatable, || {
            arch::device_write(place, width, value);
        });
    }

    fn device_write_address(&mut self, place: u64, width: u8, target: u64, repeatable: bool) {
        let where_to = DEVICE | place << 8 | u64::from(width);
        // The address itself is another one in each replica.
        let address = self.transfer + target;
        let digest = mix(mix(where_to) ^ target);
        self.output(DEVICE | place, digest, repeatable, || {
            arch::device_write(place, width, address);
        });
    }

    fn store_address(&mut self, place: u64, target: u64) {
        // As what is copied out: the device looks at it when it is told to, and that is voted.
        self.event(kind::OUTPUT, mix(mix(place) ^ target));
        arch::device_write(place, 8, self.transfer + target);
    }

    fn generation(&self) -> u64 {
        self.replica.epoch()
    }

    fn copy_out(&mut self, place: u64, words: &[u64]) {
        // Nothing goes out before the device is told to fetch it, and that is voted.
        self.event(kind::OUTPUT, digest_of(place, words));
        for (&word, at) in words.iter().zip((place..).step_by(8)) {
            arch::device_write(at, 8, word);
        }
    }

    fn copy_in(&mut self, place: u64, words: &mut [u64], generation: u64) -> bool {
        self.event(
            kind::OUTPUT,
            mix(mix(place) ^ generation) ^ words.len() as u64,
        );
        // A primary that went astray is found before anybody takes over what it has.
        self.vote();
        let good = self.exchange(place, words, generation);
        let value = if good { digest_of(place, words) } else { 0 };
        self.event(kind::INPUT, value);
        good
    }

    fn primary(&self) -> u64 {
        self.replica.primary().index() as u64
    }

    fn own(&self) -> u64 {
        self.replica.id().index() as u64
    }

    fn device_page(&self, page: u32, owner: u64) -> u64 {
        arch::device_page(page, owner)
    }

    fn blank_page(&self) -> u64 {
        arch::BLANK_PAGE
    }

    fn irq_enable(&mut self, line: u32, enabled: bool) {
        self.enabled = self.enabled & !(1 << line) | u32::from(enabled) << line;
        if self.routes {
            interrupts::route(line, enabled);
        }
    }

    fn flush(&mut self) {
        arch::flush();
    }

    fn leave_space(&mut self) {
        arch::enter_kernel_space(self.root, self.kernel_entry);
    }

    fn kernel_entry(&self) -> u64 {
        self.kernel_entry
    }

    fn base(&self) -> u64 {
        self.base
    }

    fn unhandled(&mut self, thread: Ref) {
        self.vote();
        arch::permit_off(self.is_primary());
        if self.is_primary() {
            self.diary()
                .line(format_args!("unhandled fault of thread {thread:?}"));
            arch::power_off();
        }
    }

    fn switch_fpu(&mut self, memory: &mut Memory<'_>, from: Option<Ref>, to: Ref) {
        arch::switch_fpu(memory, from, to);
    }
}
