use super::*;

const RUNNING: Facts = Facts {
    process: Process::Alive,
    phase: Phase::Running,
    ending: None,
    load_error: 0,
    halt: None,
    members: None,
    removed: false,
    stopped: false,
    shares: false,
    still: false,
};
const STOPPED: Facts = Facts {
    stopped: true,
    still: true,
    ..RUNNING
};
const STILL: Facts = Facts {
    still: true,
    ..RUNNING
};
const UNBORN: Facts = Facts {
    process: Process::Unborn,
    phase: Phase::None,
    ..RUNNING
};
const KILLED: Facts = Facts {
    process: Process::Killed(9),
    ..RUNNING
};
const REMOVED: Facts = Facts {
    removed: true,
    ..KILLED
};
const ENDED: Facts = Facts {
    process: Process::Exited(0),
    phase: Phase::Ended,
    ending: Some(Ending::Exit(3)),
    ..RUNNING
};
const FAILED: Facts = Facts {
    process: Process::Exited(1),
    phase: Phase::Failed,
    ..RUNNING
};
const HALTED: Facts = Facts {
    phase: Phase::Halted,
    halt: Some(Halt::FailStop),
    ..RUNNING
};
const CONVICTED: Facts = Facts {
    halt: Some(Halt::Convicted),
    ..HALTED
};

fn without(index: usize) -> Facts {
    Facts {
        members: Some(0b111 & !(1 << index)),
        ..RUNNING
    }
}

#[test]
fn nothing_happens_while_all_run() {
    assert_eq!(judge(&[RUNNING; 3], true, false), Decision::Wait);
    assert_eq!(judge(&[RUNNING, UNBORN], true, true), Decision::Wait);
}

#[test]
fn alike_endings_finish() {
    for count in 1..=3 {
        let facts = vec![ENDED; count];
        assert_eq!(
            judge(&facts, true, false),
            Decision::Finish(Ending::Exit(3))
        );
    }
    let finish = Decision::Finish(Ending::Exit(3));
    assert_eq!(judge(&[ENDED, REMOVED, ENDED], true, false), finish);
    let unlike = Facts {
        ending: Some(Ending::Signal(11)),
        ..ENDED
    };
    assert_eq!(
        judge(&[ENDED, unlike], true, false),
        Decision::FailStop(None, Fault::NoEnd)
    );
    let untold = Facts {
        ending: None,
        ..ENDED
    };
    assert_eq!(
        judge(&[untold], true, false),
        Decision::FailStop(None, Fault::NoEnd)
    );
}

#[test]
fn a_late_end_is_waited_for_then_not() {
    assert_eq!(
        judge(&[ENDED, RUNNING, ENDED], true, false),
        Decision::Linger
    );
    let removed = Decision::Remove(1, Fault::NoEnd);
    assert_eq!(judge(&[ENDED, RUNNING, ENDED], true, true), removed);
    let alone = Decision::Remove(0, Fault::NoEnd);
    assert_eq!(judge(&[ENDED, RUNNING, RUNNING], true, true), alone);
    let stopped = Decision::FailStop(Some(1), Fault::NoEnd);
    assert_eq!(judge(&[ENDED, RUNNING], true, true), stopped);
}

#[test]
fn a_death_is_masked_by_three_and_stops_two() {
    let removed = Decision::Remove(1, Fault::Death);
    assert_eq!(judge(&[RUNNING, KILLED, RUNNING], true, false), removed);
    let stopped = Decision::FailStop(Some(1), Fault::Death);
    assert_eq!(judge(&[RUNNING, KILLED, RUNNING], false, false), stopped);
    assert_eq!(judge(&[RUNNING, KILLED], true, false), stopped);
    assert_eq!(
        judge(&[KILLED], true, false),
        Decision::FailStop(Some(0), Fault::Death)
    );
    assert_eq!(judge(&[REMOVED, KILLED, RUNNING], true, false), stopped);
    assert_eq!(judge(&[ENDED, KILLED], true, false), stopped);
}

#[test]
fn a_silent_exit_is_a_death() {
    let silent = Facts {
        process: Process::Exited(0),
        ..RUNNING
    };
    assert_eq!(
        judge(&[RUNNING, silent], true, false),
        Decision::FailStop(Some(1), Fault::Death)
    );
}

#[test]
fn a_failed_start_is_told_apart() {
    let unloaded = Facts {
        load_error: 8,
        ..FAILED
    };
    assert_eq!(
        judge(&[unloaded, UNBORN], true, false),
        Decision::LoadFailed(8)
    );
    let early = Facts {
        phase: Phase::Loading,
        ..KILLED
    };
    assert_eq!(
        judge(&[early, UNBORN, UNBORN], true, false),
        Decision::StartFailed(0)
    );
    assert_eq!(
        judge(&[FAILED, UNBORN], true, false),
        Decision::AgentFailed(0)
    );
    let corrupt = Facts {
        load_error: 8,
        ..RUNNING
    };
    assert_eq!(judge(&[corrupt, RUNNING], true, false), Decision::Wait);
}

#[test]
fn a_replica_may_be_seen_after_another_ended() {
    for first in [ENDED, KILLED] {
        assert_eq!(judge(&[first, UNBORN], true, false), Decision::Linger);
        let stopped = Decision::FailStop(Some(1), Fault::NoEnd);
        assert_eq!(judge(&[first, UNBORN], true, true), stopped);
    }
}

#[test]
fn failing_alike_is_our_failure_failing_alone_a_fault() {
    assert_eq!(
        judge(&[FAILED, FAILED], true, false),
        Decision::AgentFailed(0)
    );
    assert_eq!(judge(&[RUNNING, FAILED], true, false), Decision::Linger);
    assert_eq!(
        judge(&[RUNNING, FAILED], true, true),
        Decision::FailStop(Some(1), Fault::Agent)
    );
    let removed = Decision::Remove(1, Fault::Agent);
    assert_eq!(judge(&[RUNNING, FAILED, RUNNING], true, true), removed);
    let stopped = Decision::FailStop(None, Fault::Verdict);
    assert_eq!(judge(&[HALTED, FAILED], true, false), stopped);
}

#[test]
fn convicted_replicas_are_removed_when_most_agree() {
    let removed = Decision::Remove(2, Fault::Verdict);
    assert_eq!(judge(&[RUNNING, RUNNING, CONVICTED], true, false), removed);
    assert_eq!(
        judge(&[without(2), without(2), RUNNING], true, false),
        removed
    );
    assert_eq!(
        judge(&[without(2), RUNNING, RUNNING], true, false),
        Decision::Wait
    );
    let stopped = Decision::FailStop(Some(2), Fault::Verdict);
    assert_eq!(
        judge(&[without(2), without(2), RUNNING], false, false),
        stopped
    );
}

#[test]
fn one_of_three_cannot_stop_the_others_at_once() {
    let stopped = Decision::FailStop(None, Fault::Verdict);
    assert_eq!(judge(&[HALTED, RUNNING], true, false), stopped);
    assert_eq!(judge(&[HALTED, HALTED, RUNNING], true, false), stopped);
    assert_eq!(
        judge(&[HALTED, RUNNING, RUNNING], true, false),
        Decision::Linger
    );
    let removed = Decision::Remove(0, Fault::Verdict);
    assert_eq!(judge(&[HALTED, RUNNING, RUNNING], true, true), removed);
}

#[test]
fn the_stopped_and_the_idle_overrule_nobody() {
    let stopped = Decision::FailStop(None, Fault::Verdict);
    for facts in [
        [HALTED, STOPPED, STOPPED],
        [STOPPED, HALTED, STOPPED],
        [STOPPED, RUNNING, HALTED],
    ] {
        assert_eq!(judge(&facts, true, false), stopped, "{facts:?}");
    }
    let idle = [STILL, STILL, HALTED];
    assert_eq!(judge(&idle, true, false), Decision::Linger);
    assert_eq!(judge(&idle, true, true), stopped);
    let removed = Decision::Remove(2, Fault::Verdict);
    assert_eq!(judge(&[STILL, RUNNING, HALTED], true, true), removed);
    let four = [HALTED, STOPPED, RUNNING, RUNNING];
    assert_eq!(judge(&four, true, false), stopped, "two of four");
}

#[test]
fn a_standstill_ends_in_a_fail_stop() {
    let stopped = Decision::FailStop(None, Fault::Stopped);
    for facts in [
        &[RUNNING, STOPPED, STOPPED][..],
        &[STOPPED, STOPPED],
        &[STOPPED; 3],
        &[REMOVED, STOPPED, STOPPED],
        &[RUNNING, STOPPED, RUNNING, STOPPED],
        &[ENDED, STOPPED, STOPPED],
    ] {
        assert_eq!(judge(facts, true, false), Decision::Linger, "{facts:?}");
        assert_eq!(judge(facts, true, true), stopped, "{facts:?}");
    }
    let one = Decision::FailStop(Some(1), Fault::Stopped);
    assert_eq!(judge(&[RUNNING, STOPPED], true, true), one);
    for others in [
        &[RUNNING, STOPPED, RUNNING][..],
        &[RUNNING, STOPPED, RUNNING, RUNNING],
        &[STOPPED],
    ] {
        assert_eq!(judge(others, true, true), Decision::Wait, "{others:?}");
    }
    let ended = Facts {
        stopped: true,
        ..ENDED
    };
    let finish = Decision::Finish(Ending::Exit(3));
    assert_eq!(judge(&[ENDED, ended, ended], true, false), finish);
}

#[test]
fn a_stopped_one_that_shares_memory_is_missed_by_others() {
    let sharing = Facts {
        shares: true,
        ..STOPPED
    };
    let three = [RUNNING, sharing, RUNNING];
    assert_eq!(judge(&three, true, false), Decision::Linger);
    let removed = Decision::Remove(1, Fault::Stopped);
    assert_eq!(judge(&three, true, true), removed);
    let stopped = Decision::FailStop(Some(1), Fault::Stopped);
    assert_eq!(judge(&three, false, true), stopped);
    assert_eq!(judge(&[sharing], true, true), Decision::Wait);
}

#[test]
fn a_verdict_tells_a_failed_agent_from_a_wrong_value() {
    let others = without(0);
    let removed = |fault| Decision::Remove(0, fault);
    assert_eq!(
        judge(&[FAILED, others, others], true, false),
        removed(Fault::Agent)
    );
    assert_eq!(
        judge(&[RUNNING, others, others], true, false),
        removed(Fault::Verdict)
    );
    assert_eq!(
        judge(&[ENDED, others, others], true, false),
        removed(Fault::Death)
    );
}
