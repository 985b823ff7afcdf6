//! Floating-point work: a sum of roots and quotients. Argument: thousands of steps (200).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use rcoe_user::println;

rcoe_user::program!(main);

fn main(argument: u64) -> u64 {
    let steps = if argument == 0 { 200 } else { argument } * 1_000;
    let mut sum = 0.0_f64;
    let mut term = 1.0_f64;
    for step in 1..=steps {
        // Newton's step towards the root of 2, disturbed and brought back.
        term = 0.5 * (term + 2.0 / term);
        #[expect(clippy::cast_precision_loss, reason = "steps are few")]
        let divisor = step as f64;
        sum += term / (divisor * divisor);
        term += 1.0 / divisor;
    }
    println!("float over {steps} steps: {:016x}", sum.to_bits());
    0
}
