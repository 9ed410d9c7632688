//! The classic mistakes of replicated logs, each a test that is named for it: schedules of the faults that
//! it takes to see the mistake. With the feature `mutations` the rules that prevent it are turned off one
//! by one, and the same schedules must fail.
//!
//! Elsewhere: M4 (subsets and orders of answers) in `takeover/tests.rs`, M13 (patterns of links) in
//! `links.rs`, M14 (equal timeouts) in `detector/tests.rs`, M15 (commit arithmetic) in `owner/tests.rs`,
//! all by search; M20 (repair for ever) and a part of M22 (full disks) in `directed.rs`. M19 (trim) is here and there.
//! Not here: M24 (load starves heartbeats) wants threads.

#[cfg(feature = "mutations")]
#[path = "directed.rs"]
mod directed;
#[cfg(feature = "mutations")]
#[path = "support/off.rs"]
mod off;
#[path = "../../../tests/seeds.rs"]
mod seeds;

use nuthatch_quorum::node::Reads;
use nuthatch_quorum::rules::Rule;
use nuthatch_sim::quorum::{Fault, Options, THEMES, Theme, World};
use seeds::seeds;

const SECOND: u64 = 1_000_000;

fn theme_of(mistake: &str) -> &'static Theme {
    THEMES.iter().find(|theme| theme.name == mistake).expect("a theme")
}

fn check(mistake: &str, rules: &[Rule]) {
    check_in(mistake, rules, Options::drawn());
}

#[cfg(not(feature = "mutations"))]
fn check_in(mistake: &str, _rules: &[Rule], options: Options) {
    let theme = theme_of(mistake);
    let options = Options { mix: Some(theme.mix()), ..options };
    for seed in seeds(0..theme.schedules) {
        if let Err(violation) = nuthatch_sim::quorum::run(seed, &options).1 {
            panic!("seed {seed}: {violation}");
        }
    }
}

/// Every rule that prevents the mistake is turned off: the schedule that was made for it must fail, or of those of the
/// mistake one of as many as are to be enough.
#[cfg(feature = "mutations")]
fn check_in(mistake: &str, rules: &[Rule], options: Options) {
    const ENOUGH: u64 = 20_000;
    let options = Options { mix: Some(theme_of(mistake).mix()), ..options };
    let mut missed = vec![];
    for rule in rules {
        nuthatch_quorum::rules::turn_off(&off::off_with(*rule));
        let made = std::panic::catch_unwind(|| directed::trouble(*rule));
        nuthatch_quorum::rules::turn_off(&[]);
        let found = made.unwrap_or(Some("directed: a panic".to_owned()));
        let by_theme = || off::by_seeds(*rule, mistake, seeds(0..ENOUGH), &options);
        let found = found.or_else(by_theme);
        println!("{mistake} {}: {}", rule.name(), found.as_deref().unwrap_or("NOT FOUND"));
        missed.extend(found.is_none().then(|| rule.name()));
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn m1_acknowledged_before_it_is_synced() {
    check("m1", &[Rule::DoneAfterSync]);
}

#[test]
fn m2_a_promise_that_is_not_durable() {
    check("m2", &[Rule::PromiseSynced, Rule::PromiseTwice]);
}

#[test]
fn m3_only_one_kind_of_message_is_fenced() {
    check("m3", &[Rule::AppendPromised, Rule::StartPromised, Rule::BringPromised]);
}

#[test]
fn m4_too_few_answers_or_the_wrong_one() {
    check("m4", &[Rule::LargestDonor, Rule::EpochBeforeLength]);
}

#[test]
fn m5_an_end_that_no_majority_holds() {
    check("m5", &[Rule::StartAtPosition, Rule::StartMajority, Rule::CommitMajority]);
}

#[test]
fn m6_a_keeper_that_lags_ends_the_log() {
    check("m4", &[Rule::LargestDonor]);
}

#[test]
fn m7_a_wiped_disk_says_that_it_never_had_an_entry() {
    let rules = [Rule::NewDiskNewIncarnation, Rule::SealCountsMembers, Rule::CheckIncarnation];
    check("m7", &rules);
}

#[test]
fn m8_an_old_image_of_a_disk_returns() {
    check("m8", &[Rule::BootCounter, Rule::ForeignDiskRefused]);
}

#[test]
fn m9_the_last_replica_decides_alone() {
    check("m9", &[Rule::SealMajority]);
}

#[test]
fn m10_rot_is_taken_for_a_torn_tail() {
    let rules = [Rule::DamageIsNotATail, Rule::WaitForCut, Rule::RecordCut, Rule::WaitForDamage];
    check("m10", &rules);
}

/// The note of a cut must outlive a second start of the epoch: candidates come and go.
#[test]
fn m10_a_cut_stays_known() {
    check("m5", &[Rule::CutStaysKnown]);
}

#[test]
fn m11_unreadable_metadata_is_taken_for_absent() {
    check("m11", &[Rule::AmnesiaIsNothing, Rule::RottenNoteIsACut]);
}

#[test]
fn m12_an_owner_that_slept_goes_on_answering() {
    let rules = [
        Rule::LeaseKept,
        Rule::LeaseAfterBoot,
        Rule::LeaseAsAsked,
        Rule::LeaseFromSending,
        Rule::LeaseByClock,
        Rule::OwnPromiseEndsLease,
        Rule::ReleaseEnds,
    ];
    check("m12", &rules);
}

#[test]
fn m16_messages_of_an_earlier_connection_or_life() {
    check("m16", &[Rule::BringOnlyExtends, Rule::DoneOfThisDisk]);
}

#[test]
fn m17_the_set_changes_while_links_flap() {
    check("m17", &[Rule::CompareRow, Rule::BroughtMajority]);
}

#[test]
fn m18_a_disk_that_was_replaced_returns() {
    check("m18", &[Rule::BootCounter]);
}

#[test]
fn m19_entries_are_trimmed_that_others_lack() {
    check("m19", &[Rule::TrimsCommitted, Rule::LeavesToTrimmed, Rule::InstallsTrimmed]);
}

/// What is trimmed differs, while disks rot.
#[test]
fn trimmed_logs_that_are_damaged_are_brought_or_replaced() {
    check("trimmed", &[Rule::TrimsCommitted, Rule::InstallOnlyExtends]);
}

#[test]
fn m21_going_on_after_a_failed_sync() {
    check("m21", &[Rule::PoisonedBySync]);
}

#[test]
fn m22_half_made_state_after_a_full_disk() {
    check("m22", &[Rule::PoisonedByWrite, Rule::FullRefuses]);
}

#[test]
fn m25_a_catalog_that_went_back_is_refused() {
    check("m25", &[Rule::CatalogNeverGoesBack]);
}

/// Rot, writes that went astray and errors of reads while processes run; disks of other nodes.
#[test]
fn damage_while_a_keeper_runs_is_found_and_healed() {
    let rules = [Rule::Scrubs, Rule::TellsDamage, Rule::HealsOwn, Rule::ForeignDiskRefused];
    check("disks", &rules);
}

#[test]
fn clocks_that_jump_stamp_and_expire_nothing_wrong() {
    check("clocks", &[Rule::StampsRise, Rule::ExpiresByAgreedClock]);
}

#[test]
fn a_read_that_trusts_no_clock_waits_for_a_round() {
    let options = Options { reads: Some(Reads::Quorum), ..Options::drawn() };
    check_in("clocks", &[Rule::ReadAfterRound], options);
}

#[test]
fn a_catalog_whose_answers_are_lost() {
    check("catalog", &[Rule::CompareRow]);
}

/// One keeper that hears and never answers, with syncs of ten seconds, holds up nobody.
#[test]
fn m23_a_keeper_that_hangs_blocks_nobody() {
    for seed in 0..20 {
        let mut world = World::new(seed, &Options::calm(3));
        world.run_for(3 * SECOND).expect("nothing fails");
        let owner = world.owner().expect("an owner");
        let hung = (owner + 1) % 3;
        world.inject(Fault::SlowDisk, hung).expect("nothing breaks");
        world.cut(hung, owner);
        let (acked, epoch) = (world.acked(), world.epoch());
        world.run_for(5 * SECOND).expect("nothing breaks");
        assert!(world.acked() - acked > 50, "seed {seed}: {} writes", world.acked() - acked);
        assert_eq!(world.epoch(), epoch, "seed {seed}: the owner stays");
    }
}
