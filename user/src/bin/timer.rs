//! The driver of the interval timer: lets clients sleep, in ticks of a hundredth of a second.
//!
//! Interrupts reach all replicas at one point of the trace, so the count of ticks is the same in
//! all. The timer runs only while somebody sleeps. One client sleeps at a time; others wait their
//! turn.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_abi::service;
use rcoe_user::{object, recv, reply_recv, timer};

rcoe_user::program!(main);

fn main(_argument: u64) -> u64 {
    let irq = service::SLOT_IRQ;
    if object::irq_notification(irq, service::SLOT_NOTIFICATION).is_err() {
        return 1;
    }
    let mut message = recv(service::SLOT_TIMER);
    loop {
        if message.label == service::TIMER_SLEEP {
            for _ in 0..message.words[0] {
                one_tick();
            }
        }
        message = reply_recv(service::SLOT_TIMER, 0, &[]);
    }
}

/// Has the timer count down and waits for the interrupt. A primary that was lost in between may
/// have taken it, then its successor raises it again: a tick is never waited for in vain.
fn one_tick() {
    assert!(timer::start().is_ok(), "the driver has the timer");
    let _ = recv(service::SLOT_NOTIFICATION);
    assert!(
        object::irq_ack(service::SLOT_IRQ).is_ok(),
        "the driver has its interrupt"
    );
}
