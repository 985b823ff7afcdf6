//! The rule, line by line, as capabilities(7) and credentials(7) tell it.

use super::*;

/// All that a container's root has here.
const FULL: u64 = 0xffff;

fn ids(real: u32, effective: u32, saved: u32) -> Ids {
    Ids {
        real,
        effective,
        saved,
        file: effective,
    }
}

fn root() -> Credentials {
    Credentials {
        user: ids(0, 0, 0),
        group: ids(0, 0, 0),
        capabilities: Capabilities {
            effective: FULL,
            permitted: FULL,
            inheritable: 0,
        },
        ambient: 0,
        bounding: FULL,
        secure_bits: 0,
        no_new_privileges: false,
        groups: 0,
        in_group: true,
    }
}

fn renewed(old: &Credentials) -> Renewed {
    old.renewed(false, Change::Entering)
}

#[test]
fn root_stays_what_it_is() {
    let after = renewed(&root());
    assert_eq!(after.credentials, root());
    assert!(!after.secure && after.dumpable && after.lacking == 0);
}

#[test]
fn who_is_no_root_loses_what_it_kept() {
    let mut kept = root();
    kept.user = ids(1000, 1000, 1000);
    kept.secure_bits = KEEP_CAPS;
    let after = renewed(&kept);
    assert_eq!(after.credentials.capabilities, Capabilities::default());
    assert_eq!(after.credentials.secure_bits, 0);
    assert!(!after.secure && after.dumpable);
}

#[test]
fn the_saved_user_becomes_the_effective_one() {
    let mut saved = root();
    saved.user = ids(1000, 1000, 0);
    saved.group = ids(1000, 1000, 0);
    let after = renewed(&saved).credentials;
    assert_eq!(after.user, ids(1000, 1000, 1000));
    assert_eq!(after.group, ids(1000, 1000, 1000));
}

#[test]
fn the_file_system_user_becomes_the_effective_one_and_hides_memory() {
    let mut server = root();
    server.user.file = 1000;
    let after = renewed(&server);
    assert_eq!(after.credentials.user, ids(0, 0, 0));
    assert!(!after.dumpable && !after.secure);
}

#[test]
fn a_real_user_of_root_is_permitted_all_and_has_none() {
    let mut real = root();
    real.user = ids(0, 1000, 0);
    let after = renewed(&real);
    assert_eq!(after.credentials.capabilities.permitted, FULL);
    assert_eq!(after.credentials.capabilities.effective, 0);
    assert!(after.secure && !after.dumpable);
}

#[test]
fn an_effective_user_of_root_has_all() {
    let mut effective = root();
    effective.user = ids(1000, 0, 0);
    effective.capabilities.effective = 0;
    let after = renewed(&effective);
    assert_eq!(after.credentials.capabilities.effective, FULL);
    assert!(after.secure && !after.dumpable);
}

#[test]
fn root_that_counts_for_nothing_loses_all() {
    let mut plain = root();
    plain.secure_bits = NOROOT;
    let after = renewed(&plain);
    assert_eq!(after.credentials.capabilities, Capabilities::default());
    assert!(after.dumpable && !after.secure);
}

#[test]
fn the_bounding_set_is_what_root_has_at_most() {
    let mut bounded = root();
    bounded.bounding = 0xff;
    assert_eq!(renewed(&bounded).credentials.capabilities.permitted, 0xff);
    bounded.capabilities.inheritable = 0xf00;
    assert_eq!(renewed(&bounded).credentials.capabilities.permitted, 0xfff);
}

#[test]
fn what_would_be_added_is_told_and_not_given() {
    let mut lowered = root();
    lowered.capabilities.permitted = 0xf;
    lowered.capabilities.effective = 1;
    let after = renewed(&lowered);
    assert_eq!(after.credentials.capabilities.permitted, 0xf);
    assert_eq!(after.credentials.capabilities.effective, 0xf);
    assert_eq!(after.lacking, FULL & !0xf);
    assert!(!after.dumpable);
}

fn ambient() -> Credentials {
    let mut user = root();
    user.user = ids(1000, 1000, 1000);
    user.capabilities.inheritable = 3;
    user.ambient = 2;
    user
}

#[test]
fn ambient_capabilities_stay() {
    let after = renewed(&ambient());
    assert_eq!(after.credentials.ambient, 2);
    assert_eq!(after.credentials.capabilities.permitted, 2);
    assert_eq!(after.credentials.capabilities.effective, 2);
    assert_eq!(after.credentials.capabilities.inheritable, 3);
    assert!(!after.secure);
}

#[test]
fn ambient_capabilities_end_with_ids_that_differ_and_files_that_have_their_own() {
    let mut differing = ambient();
    differing.group.effective = 7;
    let before = differing.renewed(false, Change::Differing);
    assert!(before.credentials.ambient == 0 && before.secure);
    assert!(renewed(&differing).credentials.ambient == 2 && renewed(&differing).secure);
    differing.in_group = false;
    assert_eq!(renewed(&differing).credentials.ambient, 0);
    let after = ambient().renewed(true, Change::Entering).credentials;
    assert_eq!((after.ambient, after.capabilities.permitted), (0, 0));
}

#[test]
fn no_new_privileges_takes_ids_that_would_change() {
    let mut bound = root();
    bound.user = ids(1000, 2000, 0);
    bound.no_new_privileges = true;
    assert_eq!(renewed(&bound).credentials.user, ids(1000, 2000, 2000));
    let before = bound.renewed(false, Change::Differing).credentials;
    assert_eq!(before.user, ids(1000, 1000, 1000));
    bound.user = ids(1000, 0, 0);
    bound.capabilities.permitted = 0xf;
    let after = renewed(&bound);
    assert_eq!(after.credentials.user, ids(1000, 1000, 1000));
    assert_eq!(after.credentials.capabilities.permitted, 0xf);
    assert_eq!(after.lacking, 0);
}

#[test]
fn less_is_within_and_more_is_not() {
    let mut less = root();
    less.capabilities.permitted = 1;
    less.capabilities.effective = 0;
    assert!(less.is_within(&root()));
    assert!(!root().is_within(&less));
    less.user.saved = 1;
    assert!(!less.is_within(&root()));
}
