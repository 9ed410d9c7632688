//! What nodes do while nothing happens.

use super::*;

#[test]
fn threads_that_tend_files_rest_while_nothing_happens_and_hear_of_what_is_committed() {
    let nodes = Nodes::start("rests", false, still());
    nodes.own_their_logs(&[0, 1, 2]);
    each_owns_one(&nodes);
    let (began, before) = (Instant::now(), nodes.hanging[1].looks());
    thread::sleep(Duration::from_secs(3));
    let looks = nodes.hanging[1].looks() - before;
    // Each log looked ten times a second when it did not rest.
    let most = LOGS as u64 * 3 * (began.elapsed().as_secs() + 1);
    assert!(looks > 0 && looks <= most, "{looks} looks, at most {most}");
    let (_, directory) = nodes.owner(0);
    for number in 0..5 {
        let applied = || nodes.log(1, 0).view().expect("whole").applied();
        let seen = applied();
        write(&directory, &format!("later-{number}")).expect("it is owned");
        wait("the other node applies it", || applied() > seen);
    }
}
