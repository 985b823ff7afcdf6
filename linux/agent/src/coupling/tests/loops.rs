//! The way out of a loop.

use crate::coupling::loops::behind;
use crate::coupling::tests::harness::Fixture;
use crate::coupling::tests::programs::{nested, recursive, top_tested};

/// Offsets in a program from which the place behind a loop is looked for, and that place.
fn exits(program: &[u8], from: &[usize]) -> Vec<Option<usize>> {
    let it = Fixture::new(program);
    let offset = |at: u64| usize::try_from(at - it.at(0)).expect("in the program");
    let exit = |from: &usize| behind(it.at(*from), &it.around()).map(|it| offset(it.at));
    from.iter().map(exit).collect()
}

#[test]
fn behind_the_inner_loop_is_the_outer_one_and_then_its_end() {
    let (program, inner) = nested();
    // add, dec, jne: 3 + 2 + 2 bytes.
    let outer = inner + 7;
    let all = exits(program, &[inner, inner + 3, inner + 5, outer, 0]);
    let end = Some(program.len());
    assert_eq!(all, [Some(outer), Some(outer), Some(outer), end, None]);
}

#[test]
fn a_loop_that_is_tested_at_its_top_is_left_from_there() {
    let (program, top) = top_tested();
    // dec, je, add, imul, jmp: 2 + 2 + 3 + 4 + 2 bytes.
    let all = exits(program, &[top, top + 2, top + 4, top + 11]);
    // Behind it the first instruction that fills a jump is that at the end.
    assert_eq!(all, [Some(program.len()); 4]);
}

#[test]
fn where_nothing_goes_back_there_is_no_loop() {
    let (program, place) = recursive();
    assert_eq!(exits(program, &[0, place]), [None, None]);
}
