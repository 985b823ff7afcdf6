//! What a counted program is: instructions at places, of which some change the way.

use crate::rng::Rng;

/// Instructions that are executed one by one, at most.
const SINGLE: u64 = 60_000;

/// An instruction.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Computes.
    Work,
    /// Goes there if these bits of the state are zero.
    Branch { to: u64, when: u64 },
    /// Goes to itself so many times: a tight loop.
    Spin(u64),
}

/// A program: its last instruction goes to the first.
#[derive(Clone, Debug)]
pub struct Program(Vec<Op>);

impl Program {
    /// A random one. With `long` it has loops that 32 bits do not count.
    #[must_use]
    pub fn random(rng: &mut Rng, long: bool) -> Self {
        let len = 3 + rng.below(20);
        let mut ops: Vec<Op> = (1..len).map(|_| Op::random(rng, len)).collect();
        if long {
            let at = rng.index(ops.len());
            ops[at] = Op::Spin((1 << 31) + rng.below(1 << 33));
        }
        ops.push(Op::Branch { to: 0, when: 0 });
        Self(ops)
    }

    fn op(&self, at: u64) -> Op {
        let at = usize::try_from(at).expect("a place of the program");
        self.0[at]
    }
}

impl Op {
    fn random(rng: &mut Rng, len: u64) -> Self {
        match rng.below(6) {
            0 | 1 => Self::Branch {
                to: rng.below(len),
                when: (1 << rng.below(3)) - 1,
            },
            2 => Self::Spin(1 + rng.below(300)),
            _ => Self::Work,
        }
    }
}

/// What was executed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// Instructions.
    pub steps: u64,
    /// Branches among them.
    pub branches: u64,
    /// Those of them that were taken.
    pub taken: u64,
}

/// A program that runs.
#[derive(Clone, Debug)]
pub struct Vm {
    program: Program,
    /// Before which instruction it stands.
    pub ip: u64,
    /// What it has computed.
    pub state: u64,
    /// Iterations left of the loop that it is in; 0 if it is in none.
    left: u64,
    /// All that it has executed.
    pub total: Executed,
}

impl Vm {
    /// One that begins.
    #[must_use]
    pub const fn new(program: Program, state: u64) -> Self {
        Self {
            program,
            ip: 0,
            state,
            left: 0,
            total: Executed {
                steps: 0,
                branches: 0,
                taken: 0,
            },
        }
    }

    /// Executes an instruction, or at most so many iterations of a tight loop.
    pub fn advance(&mut self, most: u64) -> Executed {
        let next = self.ip + 1;
        let executed = match self.program.op(self.ip) {
            Op::Work => {
                self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1;
                self.state ^= self.state >> 29;
                self.ip = next;
                Executed {
                    steps: 1,
                    ..Executed::default()
                }
            }
            Op::Branch { to, when } => {
                self.state = self.state.rotate_left(7) ^ 0x9e37_79b9;
                let taken = self.state & when == 0;
                self.ip = if taken { to } else { next };
                Executed {
                    steps: 1,
                    branches: 1,
                    taken: taken.into(),
                }
            }
            Op::Spin(times) => self.spin(times, most, next),
        };
        self.total.steps += executed.steps;
        self.total.branches += executed.branches;
        self.total.taken += executed.taken;
        executed
    }

    fn spin(&mut self, times: u64, most: u64, next: u64) -> Executed {
        if self.left == 0 {
            self.left = times;
        }
        let now = self.left.min(most);
        self.left -= now;
        let leaves = self.left == 0;
        if leaves {
            self.ip = next;
        }
        Executed {
            steps: now,
            branches: now,
            taken: now - u64::from(leaves),
        }
    }

    /// Executes so many instructions, or fewer if too many of them are in no tight loop.
    pub fn execute(&mut self, steps: u64) {
        let end = self.total.steps + steps;
        for _ in 0..SINGLE {
            if self.total.steps == end {
                break;
            }
            self.advance(end - self.total.steps);
        }
    }
}
