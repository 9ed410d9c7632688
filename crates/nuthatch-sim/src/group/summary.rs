//! What happened in schedules, in figures.

/// What happened in a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Hash of everything.
    pub hash: u64,
    /// Steps.
    pub steps: u64,
    /// Calls that were answered.
    pub answers: u64,
    /// The greatest revision.
    pub revision: u64,
    /// Terms that had a leader.
    pub terms: u64,
    /// Faults.
    pub faults: u64,
    /// Disks that were lost or set back, and how many of them were set back.
    pub disks: u64,
    /// Of them.
    pub images: u64,
    /// Nodes that joined, and that were replaced by others.
    pub joined: u64,
    /// Of all.
    pub replaced: u64,
    /// How often the number of nodes that keep the logs was another one.
    pub resized: u64,
    /// How often the nodes that are to own nothing were other ones.
    pub drained: u64,
    /// How often a leader had the place of a node taken that was away for long.
    pub absent: u64,
    /// Steps of several events, which came while a disk was busy.
    pub together: u64,
}

impl Summary {
    /// Adds another schedule.
    pub fn add(&mut self, other: &Self) {
        self.answers += other.answers;
        self.revision += other.revision;
        self.terms += other.terms;
        self.faults += other.faults;
        self.disks += other.disks;
        self.images += other.images;
        self.joined += other.joined;
        self.replaced += other.replaced;
        self.resized += other.resized;
        self.drained += other.drained;
        self.absent += other.absent;
        self.together += other.together;
    }
}
