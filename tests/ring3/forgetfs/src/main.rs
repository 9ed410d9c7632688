//! A file system in memory that forgets what was not synced when its power is cut.
//!
//! `forgetfs MOUNTPOINT SOCKET` mounts one, empty, and takes commands at a Unix socket, a line each, answered by a line:
//! `die` (the power goes), `cut SEED PERCENT` (it comes back, when whoever used the files is gone; so much of what was
//! not synced is there, drawn from the seed), answered with how many sectors and names are gone), `settle` (all is durable), `slow MS` (each sync takes so long),
//! `fail COUNT` (the next syncs fail), `full 0|1` (no room), `count` (how often the last three did something since this was asked last).

mod content;
mod control;
mod disk;
mod mounted;
mod random;
#[cfg(test)]
mod tests;

use mounted::{Mounted, Shared};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mountpoint, socket] = args.as_slice() else {
        eprintln!("usage: forgetfs MOUNTPOINT SOCKET");
        return ExitCode::from(2);
    };
    match serve(mountpoint, socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("forgetfs: {mountpoint}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(mountpoint: &str, socket: &str) -> std::io::Result<()> {
    let shared = Shared::default();
    let options = [fuser::MountOption::FSName("forgetfs".into()), fuser::MountOption::NoAtime];
    let mut mounted = fuser::Session::new(Mounted::new(shared.clone()), mountpoint, &options)?;
    control::listen(socket, &shared)?;
    mounted.run()
}
