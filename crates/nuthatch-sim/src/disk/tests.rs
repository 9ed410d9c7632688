//! What a failed sync and a power cut leave.

use super::*;

/// A disk that remembers which operations reached it; 0 is a barrier.
#[derive(Clone, Debug, Default)]
struct Reached(Vec<u32>);

impl Medium for Reached {
    type Op = u32;

    fn apply(&mut self, op: &u32) {
        self.0.push(*op);
    }

    fn tear(&mut self, _: &u32) -> bool {
        false
    }

    fn is_barrier(op: &u32) -> bool {
        *op == 0
    }

    fn grows(op: &u32) -> bool {
        *op > 4
    }
}

/// Three operations, a barrier, three more, a barrier and a last one.
const OPS: [u32; 9] = [1, 2, 3, 0, 4, 5, 6, 0, 7];

/// True if everything in front of a barrier is there when anything behind it is.
fn keeps_barriers(reached: &[u32]) -> bool {
    let all = |ops: &[u32]| ops.iter().all(|op| reached.contains(op));
    let any = |ops: &[u32]| ops.iter().any(|op| reached.contains(op));
    (!any(&[4, 5, 6, 7]) || all(&[1, 2, 3])) && (!any(&[7]) || all(&[4, 5, 6]))
}

#[test]
fn a_failed_sync_leaves_nothing_behind_a_barrier_without_what_is_in_front_of_it() {
    let mut lost = 0;
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let mut disk = Disk::new(Reached::default());
        disk.failing = 1;
        disk.write(OPS.to_vec(), &mut rng).expect("room");
        let sync = disk.begin_sync(0, &mut rng);
        disk.write(vec![8], &mut rng).expect("room");
        assert!(!disk.end_sync(sync, &mut rng), "it fails");
        disk.power_goes(&mut rng);
        assert!(keeps_barriers(&disk.durable().0), "seed {seed}: {:?}", disk.durable());
        lost += usize::from(!disk.durable().0.contains(&3));
    }
    assert!(lost > 100, "failed syncs lose something: {lost}");
}

#[test]
fn a_power_cut_leaves_nothing_behind_a_barrier_without_what_is_in_front_of_it() {
    for seed in 0..500 {
        let mut rng = Rng::new(seed);
        let mut disk = Disk::new(Reached::default());
        disk.write(OPS.to_vec(), &mut rng).expect("room");
        disk.power_goes(&mut rng);
        assert!(keeps_barriers(&disk.durable().0), "seed {seed}: {:?}", disk.durable());
    }
}

#[test]
fn what_stands_behind_a_write_that_failed_is_not_written_either() {
    let mut rng = Rng::new(1);
    let mut disk = Disk::new(Reached::default());
    disk.room = Some(1);
    assert_eq!(disk.write(OPS.to_vec(), &mut rng), Err(WriteError::Full));
    disk.process_ends();
    assert_eq!(disk.durable().0, [1, 2, 3, 0, 4, 5]);
    disk.refusing = 1;
    assert_eq!(disk.write(vec![1, 1], &mut rng), Err(WriteError::Io));
    assert_eq!(disk.write(vec![1], &mut rng), Ok(()), "only one fails");
}
