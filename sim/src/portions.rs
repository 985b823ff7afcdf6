//! Copies in portions under programs that write and bits that flip: the real bookkeeping and the
//! real plan ([`rcoe_core::portions`]) over members that are made of a few hundred blocks.
//!
//! Threads write blocks of their own by a script that is the same in all members. Between two
//! portions each thread goes on; at the next point it waits, having come equally far everywhere, or
//! it computes, and then it is at another place of its script in each member. Kernels write blocks
//! of theirs at the point itself, zero some, and hand blocks from one thread to another. In some
//! runs a bit flips in one member.
//!
//! What must hold: nobody who is all right is found odd; no portion costs more than the budget; and
//! what the copy has in the end is what the donor has, and, but for what is apart then, what a
//! member has in which nothing flipped.

use rcoe_core::portions::{COMPARED, Kept, Plan, Portion, ROUNDS, WORD};
use rcoe_core::{ReplicaId, ReplicaSet, mix};

use crate::rng::Rng;

/// Words of sets: so many times 64 blocks.
const WORDS: usize = 4;
const BLOCKS: usize = WORDS * 64;
const THREADS: usize = 3;
/// What a portion may cost.
const BUDGET: u64 = 64 * (1 + COMPARED) + 40;

/// A mistake, for tests of this test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// None.
    None,
    /// What is apart counts as compared.
    TrustApart,
    /// What programs write is not noted.
    NoteNothing,
    /// The kernel's own is not copied in the end.
    LeaveOwn,
    /// A block that another thread gets is not forgotten.
    HandUnnoted,
    /// What was zeroed is not forgotten.
    ZeroUnnoted,
    /// Members that differ are not looked for.
    NoJudge,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The copy was made.
    pub copied: bool,
    /// Portions.
    pub portions: u32,
    /// A donor was found odd, and another was copied.
    pub again: bool,
}

struct Member<'a> {
    memory: Vec<u64>,
    /// Written since that was noted.
    written: Vec<bool>,
    kept: Kept<'a>,
    progress: [u64; THREADS],
}

struct World<'a> {
    rng: Rng,
    mistake: Mistake,
    members: Vec<Member<'a>>,
    /// Whose each block is: a thread's, or the kernel's beyond those.
    owner: Vec<usize>,
    /// How far each thread is at this point, if it waits, and at least, if it computes.
    agreed: [u64; THREADS],
    waits: [bool; THREADS],
    copy: Vec<u64>,
    /// Who had a bit flipped.
    flipped: Option<usize>,
    time: u64,
}

/// The owner of the kernel's blocks, and of those that nobody has.
const KERNEL: usize = THREADS;
const NOBODY: usize = THREADS + 1;

impl<'a> World<'a> {
    fn new(seed: u64, mistake: Mistake, sets: &'a mut [Vec<u64>]) -> Self {
        let mut rng = Rng::new(seed);
        let owner: Vec<usize> = (0..BLOCKS).map(|_| rng.index(NOBODY + 1)).collect();
        let member = |words: &'a mut Vec<u64>| {
            let mut kept = Kept::new(words);
            for (block, _) in (0..).zip(&owner).filter(|(_, owner)| **owner == KERNEL) {
                kept.own(block..block + 1);
            }
            Member {
                memory: (0..BLOCKS as u64).map(mix).collect(),
                written: vec![false; BLOCKS],
                kept,
                progress: [0; THREADS],
            }
        };
        Self {
            members: sets.iter_mut().map(member).collect(),
            rng,
            mistake,
            owner,
            agreed: [0; THREADS],
            waits: [true; THREADS],
            copy: vec![u64::MAX; BLOCKS],
            flipped: None,
            time: 0,
        }
    }

    /// Programs run to the next point.
    fn run(&mut self, speed: u64) {
        self.time += 1;
        for thread in 0..THREADS {
            let steps = self.rng.below(speed + 1);
            let (from, to) = (self.agreed[thread], self.agreed[thread] + steps);
            self.waits[thread] = self.rng.one_in(2);
            let blocks: Vec<usize> = (0..BLOCKS)
                .filter(|&block| self.owner[block] == thread)
                .collect();
            for member in &mut self.members {
                let stop = match self.waits[thread] {
                    true => to,
                    false => from + self.rng.below(steps + 1),
                };
                // Whoever was ahead of what is agreed stays there.
                while member.progress[thread] < stop && !blocks.is_empty() {
                    let step = mix(member.progress[thread] << 8 | thread as u64);
                    let block = blocks[usize::try_from(step % blocks.len() as u64).unwrap()];
                    member.memory[block] = step;
                    member.written[block] = true;
                    member.progress[thread] += 1;
                }
            }
            if self.waits[thread] {
                self.agreed[thread] = to;
            } else {
                let least = self.members.iter().map(|member| member.progress[thread]);
                self.agreed[thread] = least.max().unwrap_or(to).max(from);
            }
        }
        self.kernel();
    }

    /// What the kernels do at the point, alike in all.
    fn kernel(&mut self) {
        for _ in 0..self.rng.below(6) {
            let block = self.rng.index(BLOCKS);
            let at = block as u64;
            let owner = self.owner[block];
            let thread = self.rng.index(THREADS);
            for member in &mut self.members {
                match owner {
                    KERNEL if !self.time.is_multiple_of(3) => member.memory[block] = mix(self.time),
                    // What ends is zeroed, and is somebody's later.
                    KERNEL => {
                        member.memory[block] = 0;
                        if self.mistake != Mistake::ZeroUnnoted {
                            member.kept.forget(at..at + 1);
                        }
                        member.kept.disown(at..at + 1);
                    }
                    NOBODY => {
                        member.memory[block] = mix(self.time);
                        member.kept.own(at..at + 1);
                    }
                    _ if self.waits[owner] && self.waits[thread] => {
                        // The entry by which it was written is gone.
                        member.written[block] = false;
                        if self.mistake != Mistake::HandUnnoted {
                            member.kept.forget(at..at + 1);
                        }
                    }
                    _ => {}
                }
            }
            self.owner[block] = match owner {
                KERNEL if !self.time.is_multiple_of(3) => KERNEL,
                KERNEL => NOBODY,
                NOBODY => KERNEL,
                _ if self.waits[owner] && self.waits[thread] => thread,
                _ => owner,
            };
        }
    }

    fn flip(&mut self) {
        let victim = self.rng.index(self.members.len());
        let block = self.rng.index(BLOCKS);
        self.members[victim].memory[block] ^= 1 << self.rng.below(64);
        self.flipped = Some(victim);
    }

    fn apart(&self) -> [u64; WORDS] {
        let mut apart = [0; WORDS];
        for (block, &owner) in self.owner.iter().enumerate() {
            if owner < THREADS && !self.waits[owner] {
                apart[block / 64] |= 1 << (block % 64);
            }
        }
        apart
    }

    fn note(&mut self) {
        for member in &mut self.members {
            for block in 0..BLOCKS as u64 {
                let written = &mut member.written[usize::try_from(block).unwrap()];
                if std::mem::take(written) && self.mistake != Mistake::NoteNothing {
                    member.kept.forget(block..block + 1);
                }
            }
        }
    }

    /// The digest of a member, of what is to be compared of these words.
    fn digest(&self, member: usize, words: std::ops::Range<usize>, last: bool) -> u64 {
        let member = &self.members[member];
        let apart = self.apart();
        let mut digest = 0;
        for word in words {
            let unchecked = member.kept.unchecked(word, &apart, last);
            for bit in (0..64).filter(|bit| unchecked & 1 << bit != 0) {
                digest = mix(digest ^ member.memory[word * 64 + bit] ^ ((word * 64 + bit) as u64));
            }
        }
        digest
    }

    fn copy_from(&mut self, donor: usize, words: std::ops::Range<usize>, last: bool) -> u64 {
        let member = &self.members[donor];
        let mut copied = 0;
        for word in words {
            let with_own = last && self.mistake != Mistake::LeaveOwn;
            let own = if with_own {
                0
            } else {
                member.kept.owned()[word]
            };
            let missing = member.kept.missing(word) & !own;
            for block in (0..64).filter(|bit| missing & 1 << bit != 0) {
                self.copy[word * 64 + block] = member.memory[word * 64 + block];
                copied += 1;
            }
        }
        copied
    }

    /// Is the copy what it must be, and was nobody found odd for nothing?
    fn check(&self, donor: usize, plan: &Plan) -> Result<(), String> {
        if self.copy != self.members[donor].memory {
            let wrong = (0..BLOCKS).find(|&at| self.copy[at] != self.members[donor].memory[at]);
            if self.flipped != Some(donor) {
                return Err(format!("block {wrong:?} is not the donor's"));
            }
        }
        let well = (0..self.members.len()).find(|member| self.flipped != Some(*member));
        let well = &self.members[well.expect("one flips at most")];
        let apart = self.apart();
        let differs = |&at: &usize| {
            let apart = apart[at / 64] & 1 << (at % 64) != 0;
            !apart && self.copy[at] != well.memory[at]
        };
        if let Some(at) = (0..BLOCKS).find(differs) {
            return Err(format!("block {at} is not what it should be"));
        }
        let odd = plan
            .odd()
            .iter()
            .find(|id| Some(id.index()) != self.flipped);
        odd.map_or(Ok(()), |id| Err(format!("{id} is odd for nothing")))
    }
}

/// Makes one copy among some members.
///
/// # Errors
/// What does not hold.
///
/// # Panics
/// If a portion is empty.
pub fn copy_once(seed: u64, mistake: Mistake) -> Result<Outcome, String> {
    let mut rng = Rng::new(!seed);
    let count = 2 + rng.index(2);
    let mut sets = vec![vec![0; 3 * WORDS]; count];
    let mut world = World::new(seed, mistake, &mut sets);
    let speed = [4, 40, 400][rng.index(3)];
    let flips_at = rng.one_in(2).then(|| 1 + rng.below(8));
    let members = ReplicaSet::all(count);
    let mut plan = Plan::new(ReplicaId::new(3), members, 0);
    let mut outcome = Outcome {
        copied: false,
        portions: 0,
        again: false,
    };
    loop {
        world.run(speed);
        if flips_at == Some(world.time) {
            world.flip();
        }
        let Some(donor) = plan.donor(ReplicaId::new(0)) else {
            return refused(&world, outcome);
        };
        world.note();
        let apart = world.apart();
        outcome.portions += 1;
        let offer = plan.offer(&world.members[donor.index()].kept, &apart, WORDS, BUDGET);
        let portion = plan.read(offer, WORDS).ok_or("no offer")?;
        let (words, last) = match portion {
            Portion::Words(words) => (words, false),
            _ => (0..WORDS, true),
        };
        let digests: Vec<u64> = (0..count)
            .map(|member| world.digest(member, words.clone(), last))
            .collect();
        if mistake != Mistake::NoJudge && plan.judge(|id| digests[id.index()]).is_none() {
            return refused(&world, outcome);
        }
        if plan.odd().contains(donor) {
            plan.begin_again(donor);
            for member in &mut world.members {
                member.kept.begin();
            }
            outcome.again = true;
            continue;
        }
        let copied = world.copy_from(donor.index(), words.clone(), last);
        if last {
            outcome.copied = true;
            world.check(donor.index(), &plan)?;
            return Ok(outcome);
        }
        if copied > BUDGET.max(WORD) {
            return Err(format!("{copied} blocks in one portion"));
        }
        let trusted = match mistake {
            Mistake::TrustApart => [0; WORDS],
            _ => apart,
        };
        for member in &mut world.members {
            member.kept.keep(words.clone(), &trusted);
        }
        plan.advance(words.end, WORDS);
        if outcome.portions > 2 * (ROUNDS + 1) * u32::try_from(WORDS).unwrap() {
            return Err("it does not come to an end".to_owned());
        }
    }
}

/// No copy was made. That is right only if something flipped.
fn refused(world: &World<'_>, outcome: Outcome) -> Result<Outcome, String> {
    match world.flipped {
        Some(_) => Ok(outcome),
        None => Err("members that are all right differ".to_owned()),
    }
}
