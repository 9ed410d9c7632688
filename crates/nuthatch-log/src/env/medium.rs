//! What the log has to know of the medium below a directory. Facts, not kinds: a directory of a new
//! kind says which of them hold, and the log asks for nothing else.

/// Facts about the medium of a directory; they do not change while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Medium {
    /// Files are in this process's memory: nothing outlasts it, reading takes no time and needs no
    /// checks, a sync means nothing.
    pub in_memory: bool,
    /// The directory is this machine's own: whoever has its lock is the only writer, space is
    /// allocated ahead of what is written (zeros mark what was never written), and the catalog notes
    /// how much.
    pub is_local: bool,
    /// A buffer handed to [`super::DiskFile::write_shared`] is kept, not copied.
    pub keeps_buffers: bool,
    /// What is stored is stored under the file's name: renaming a file stores it again.
    pub names_are_keys: bool,
    /// How many frames may be on their way at a time, and what that means.
    pub write_order: WriteOrder,
    /// How many files that are [`Reach::Remote`] may be read at a time; 0: there are none.
    pub remote_readers: usize,
}

impl Medium {
    /// A directory of this machine.
    pub const LOCAL: Self = Self {
        in_memory: false,
        is_local: true,
        keeps_buffers: false,
        names_are_keys: false,
        write_order: WriteOrder::OneAtATime,
        remote_readers: 0,
    };

    /// Main memory.
    pub const MEMORY: Self =
        Self { in_memory: true, is_local: false, keeps_buffers: true, ..Self::LOCAL };

    /// Objects in a bucket: a sync makes new ones, nothing is ever overwritten.
    pub const fn bucket(remote_readers: usize) -> Self {
        Self {
            in_memory: false,
            is_local: false,
            keeps_buffers: true,
            names_are_keys: true,
            write_order: WriteOrder::SettledInOrder,
            remote_readers,
        }
    }
}

/// How the frames of a log reach its medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOrder {
    /// The next frame is written only when the one before it is durable: writes to the medium are
    /// quick, and a tail that is torn is one frame (invariant A2).
    OneAtATime,
    /// Several frames are on their way and arrive in any order; they commit in theirs. Writing takes
    /// so long that nobody is to wait for it.
    SettledInOrder,
}

/// Where the bytes of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// On this machine.
    Here,
    /// Reading takes a request over a network: such reads are made beside the others, which are not to
    /// wait for them.
    Remote,
    /// As [`Reach::Remote`], and what holds the file does not answer at present: work that can wait
    /// (compaction) leaves it alone.
    Away,
}

impl Reach {
    /// True if reading takes a request over a network.
    #[must_use]
    pub const fn is_remote(self) -> bool {
        !matches!(self, Self::Here)
    }
}
