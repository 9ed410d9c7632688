//! The protocol of a quorum log: one owner for each epoch, three (or five) fenced keepers, and an
//! acknowledgement when a majority of them has a frame durably.
//!
//! It is the protocol as *cores* that take events and give effects, without sockets, files, clocks or threads
//! ([`node::Node::step`]), under proof in the schedules of `nuthatch-sim`; `docs/simulation.md` says what those
//! show and what not. `nuthatch-cluster` drives them in servers, which is experimental.
//!
//! # Pieces
//!
//! - [`keeper`]: one disk's copy of the log, its promise, the lease it granted.
//! - [`takeover`]: how a node becomes the owner. [`owner`]: what it does then.
//! - [`detector`]: whether there is a healthy owner.
//! - [`catalog`]: small transactions, compared by revision; a model in memory behind a trait.
//! - [`node`]: these of one machine put together; handover and other sets (`node/wish.rs`).
//! - [`store`]: what is on a disk, and how it is read after a stop. [`entry`]: the chain of entries.
//! - `wall`: whether the own wall clock is right, by what the others' show.
//! - [`rules`]: a switch for each rule, for the job that shows that schedules find its loss.
//!
//! The log is one chain of entries numbered from 1, each with its epoch, the sum of the one before it,
//! and what was committed when it was written. A frame, an operation on files and the `Start` of an epoch
//! are entries. The *accepted* epoch of a disk is that of its last entry; its position is (accepted epoch,
//! number of the last entry), compared in that order.
//!
//! # Taking over
//!
//! 1. Most of the set say that they hear no healthy owner.
//! 2. Transaction on the log's row, compared by revision: epoch *E*, this owner, recovering.
//! 3. `Seal(E)`: a keeper promises *E* to this candidate's disk and to no lower or other one, durably,
//!    in two slots one after the other, before it answers with its position. Needed: a majority of the
//!    *set*. Disks that are not in the set, or lost their state, do not count.
//! 4. The donor is the largest position. All that it has is kept. What it cannot read comes from the
//!    others, checked by the chain; what nobody in reach can read is waited for.
//! 5. `Bring`: the candidate's own log, then others, are made equal to the donor's. Before a keeper has
//!    accepted *E* this may cut its log back (set aside first); afterwards it only extends and heals.
//! 6. When a majority of the new set is equal: transaction, compared with that of step 2: serving. The new set
//!    is the wished one; it needs no disk in common with the old one, a majority of which has answered.
//! 7. `Start(E, position, sum)`: appends the first entry of *E* where the log ends exactly there. When a
//!    majority has that durably, the owner serves.
//!
//! # Serving
//!
//! One frame is in flight. Each goes to all keepers, which check promise, accepted epoch, order and chain
//! before they write and answer `Done` when it is durable. The commit position is what a majority has
//! reached, computed anew with each answer. An owner ends when a keeper has promised a later epoch, its own
//! disk fails a sync, or no majority has answered its beats for 600 ms.
//!
//! A message holds a window of entries at most, and a keeper has one message on its way. Disks that are to come
//! into the set *learn*: they are brought the log beside serving and count for nothing, until they have
//! everything and the owner takes over from itself with the new set.
//!
//! Linearizable reads need a lease: a majority answered a beat *sent* less than that ago (200 ms, or less where the
//! beat says so), by a clock that runs on in sleep, asked before each answer. A keeper promises nobody else a later
//! epoch for a tenth longer after a beat of the owner, nor for 220 ms after its own start. Where no clock is trusted ([`node::Reads::Quorum`]) a read waits
//! for a round of beats that began after it came, and that a majority has answered.
//!
//! An owner hands over by committing what it has, giving back its leases, which ends it in the same step, and
//! telling a whole keeper to take over, which need not wait for silence or leases.
//!
//! # Disks
//!
//! What counts is the disk and not the node: each directory has a random incarnation, and a boot counter
//! that is compared with the catalog's, raised on the disk and then in the catalog before anything is
//! answered. A directory that is empty, has no readable promise or identity, or whose counter is below the
//! catalog's, begins anew under another incarnation; what it held is set aside. A new disk takes its predecessor's
//! place in the set by a takeover. Incarnations that were replaced never come back.
//!
//! A keeper reads what it holds again and again. What it cannot read it tells the owner with the answers to beats,
//! and is sent it again; an owner fetches what it cannot read itself. After a write or sync that failed, and when
//! its last entry is damaged, it is opened anew. Without room it takes no frames but promises; an owner without
//! room hands over. A directory of another node is not touched. The newest revision of the log's row that a node
//! has seen is on its disk, and a catalog behind that is not listened to.
//!
//! # Clocks
//!
//! Entries have stamps, which never go back. A node whose wall clock most of the set contradict takes over last;
//! one with which no majority agrees expires nothing ([`node::Node::expiry_clock`]).
//!
//! # Invariants
//!
//! Asserted after every step of every schedule:
//!
//! - **Q1** One owner for each epoch. **Q2** Promised and accepted epochs of a disk never fall.
//! - **Q3** What a keeper said is done is on its disk, in a prefix. **Q4** A committed entry is durable on
//!   a majority of the set.
//! - **Q5** Of two disks of one accepted epoch one log is a prefix of the other. **Q6** An epoch begins with
//!   everything committed before. **Q7** Nothing is committed in an epoch that a majority has not accepted.
//! - **Q8** A disk that lost state never answers for its former incarnation. **Q9** Nothing is removed that
//!   is not kept aside. **Q10** Damaged is never absent.
//! - **Q11** A commit position never falls and no entry has two contents. **Q12** At most one node has a
//!   lease, and no linearizable read is stale. **Q13** Equal positions, equal bytes.
//! - **Q14** When faults stop, writes are taken and every disk of the set becomes whole within 10 s.
//!
//! # Where this is simpler than, or differs from, the design it follows
//!
//! - **One numbering.** Frames and operations on files share one chain here; files for either are the
//!   driver's matter. The prefix rule and the position need no second number then.
//! - **A majority is asked before the epoch is raised**, instead of stopping only at a healthy answer: a
//!   node that is cut off from the others but reaches the catalog would otherwise raise epochs that it
//!   cannot take over, and each would be in the way of the next real takeover.
//! - **`Start` names the sum of the last entry**, which stands for the whole log. With the number alone a
//!   log that was brought in several messages, and differs behind the first, could pass.
//! - **A cut is noted on the disk** until a later epoch starts there, or the owner shows that all of its epoch is
//!   there ([`message::Reach`]). Otherwise a second start, which finds no torn bytes any more, or a part of
//!   what was lost would make the disk look whole and be chosen without waiting for the others (R2).
//! - **The boot counter is compared before it is raised**, and set to one more than the catalog's. Raised at
//!   each start first, it would let an old image that is started twice pass for the disk it was.
//! - **The last intact entry vouches for all before it**, since one frame is in flight: no separate mark
//!   is needed to tell a torn tail from damage below it.
//! - **A new disk is admitted whenever most of the old set has answered** and most of the new one is equal, also
//!   beside others that are damaged: the transaction decides, and it only adds a whole disk.
//! - **Answers carry no number of a connection.** An answer counts for its epoch and its disk; within an
//!   epoch a keeper's log only grows, so a late one is still true.
//! - **An epoch with the set that it was claimed with starts before the row says that it serves.** Whoever claims
//!   a later one asks a majority of the same disks. With another set, or a cut to record, it waits for the row.
//! - **Ranks only save duels.** Two candidates at one moment are told apart by the catalog's comparison.
//! - **A partly sent operation of a resync is not special**: each message is valid by itself, so a learner
//!   is a keeper that has not started the epoch.
//!
//! # Open
//!
//! `docs/simulation.md` says what schedules do not show. What is here is not proved.
//!
//! # Not here yet
//!
//! Lanes, standbys, the tier, resync from the newest entries on. A candidate that lacks much of the log
//! fetches it window by window, and holds all of it in memory before it writes it.

pub mod catalog;
pub mod detector;
pub mod doing;
pub mod effect;
pub mod entry;
pub mod keeper;
pub mod message;
pub mod node;
mod out;
pub mod owner;
pub mod rules;
pub mod store;
pub mod takeover;
pub mod timing;
pub mod types;
mod wall;
