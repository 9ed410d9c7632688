use crate::content::{FileData, SECTOR};
use crate::disk::{Directory, Disk, Ino, Kind, ROOT};
use std::ffi::OsStr;

fn file(disk: &mut Disk, parent: Ino, name: &str, content: &[u8]) -> Ino {
    let made =
        disk.create(parent, OsStr::new(name), Kind::File(FileData::default()), 0o644, (0, 0));
    let ino = made.expect("room");
    disk.write(ino, 0, content).expect("room");
    ino
}

fn read(disk: &mut Disk, parent: Ino, name: &str) -> Option<Vec<u8>> {
    let ino = disk.lookup(parent, OsStr::new(name)).ok()?;
    Some(disk.file(ino).expect("a file").current().read(0, 1 << 20))
}

#[test]
fn what_was_synced_stays() {
    let mut disk = Disk::new();
    let ino = file(&mut disk, ROOT, "a", b"one");
    disk.sync(ino).unwrap();
    disk.sync(ROOT).unwrap();
    disk.write(ino, 3, b", two").unwrap();
    disk.write(ino, 0, b"ONE").unwrap();
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"ONE, two");
    assert_eq!(disk.cut(1, 0), 1, "a sector");
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"one");
}

#[test]
fn a_name_that_was_not_synced_goes_with_its_file() {
    let mut disk = Disk::new();
    let ino = file(&mut disk, ROOT, "a", b"one");
    disk.sync(ino).unwrap();
    disk.cut(1, 0);
    assert_eq!(read(&mut disk, ROOT, "a"), None);
    assert!(disk.get(ino).is_err(), "nobody reaches it any more");
}

#[test]
fn a_name_whose_file_was_not_synced_stays_without_content() {
    let mut disk = Disk::new();
    file(&mut disk, ROOT, "a", b"one");
    disk.sync(ROOT).unwrap();
    disk.cut(1, 0);
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"");
}

#[test]
fn a_rename_without_a_sync_of_its_directory_is_lost() {
    let mut disk = Disk::new();
    let old = file(&mut disk, ROOT, "a", b"old");
    let new = file(&mut disk, ROOT, "b", b"new");
    for ino in [old, new, ROOT] {
        disk.sync(ino).unwrap();
    }
    let rename =
        |disk: &mut Disk| disk.rename((ROOT, OsStr::new("b")), (ROOT, OsStr::new("a")), true);
    rename(&mut disk).unwrap();
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"new");
    disk.cut(1, 0);
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"old");
    assert_eq!(read(&mut disk, ROOT, "b").unwrap(), b"new");
    rename(&mut disk).unwrap();
    disk.sync(ROOT).unwrap();
    disk.cut(1, 0);
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"new");
    assert_eq!(read(&mut disk, ROOT, "b"), None);
}

#[test]
fn a_removal_without_a_sync_of_its_directory_is_undone() {
    let mut disk = Disk::new();
    let ino = file(&mut disk, ROOT, "a", b"one");
    disk.sync(ino).unwrap();
    disk.sync(ROOT).unwrap();
    disk.remove(ROOT, OsStr::new("a")).unwrap();
    assert_eq!(read(&mut disk, ROOT, "a"), None);
    disk.cut(1, 0);
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"one");
}

#[test]
fn a_directory_without_a_durable_name_is_lost_with_what_is_in_it() {
    let mut disk = Disk::new();
    let made =
        disk.create(ROOT, OsStr::new("d"), Kind::Directory(Directory::default()), 0o755, (0, 0));
    let directory = made.unwrap();
    let ino = file(&mut disk, directory, "a", b"one");
    disk.sync(ino).unwrap();
    disk.sync(directory).unwrap();
    disk.cut(1, 0);
    assert!(disk.lookup(ROOT, OsStr::new("d")).is_err());
    assert!(disk.get(ino).is_err());
}

#[test]
fn a_cut_to_a_length_is_undone_unless_it_was_synced() {
    let mut disk = Disk::new();
    let ino = file(&mut disk, ROOT, "a", b"one, two");
    disk.sync(ino).unwrap();
    disk.sync(ROOT).unwrap();
    disk.file(ino).unwrap().set_len(3);
    disk.cut(1, 0);
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"one, two");
    disk.file(ino).unwrap().set_len(3);
    disk.sync(ino).unwrap();
    disk.file(ino).unwrap().set_len(8);
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"one\0\0\0\0\0");
    disk.cut(1, 0);
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"one");
}

#[test]
fn any_part_of_what_was_not_synced_may_stay() {
    let (mut kept, mut lost, mut out_of_order) = (0, 0, 0);
    for seed in 0..50 {
        let mut disk = Disk::new();
        let ino = file(&mut disk, ROOT, "a", b"");
        disk.sync(ROOT).unwrap();
        let content: Vec<u8> = (1..=8).flat_map(|sector| [sector; SECTOR as usize]).collect();
        disk.write(ino, 0, &content).unwrap();
        disk.cut(seed, 50);
        let found = read(&mut disk, ROOT, "a").unwrap();
        let sectors: Vec<u8> = found.chunks(SECTOR as usize).map(|sector| sector[0]).collect();
        for (at, sector) in sectors.iter().enumerate() {
            assert!(*sector == 0 || *sector == at as u8 + 1, "a sector is old or new, never torn");
        }
        kept += sectors.iter().filter(|sector| **sector != 0).count();
        lost += 8 - sectors.iter().filter(|sector| **sector != 0).count();
        out_of_order += usize::from(sectors.contains(&0));
    }
    assert!(kept > 100 && lost > 100 && out_of_order > 10, "{kept} {lost} {out_of_order}");
}

#[test]
fn names_stay_in_the_order_of_their_changes() {
    let mut seen = [false; 4];
    for seed in 0..50 {
        let mut disk = Disk::new();
        for name in ["0", "1", "2"] {
            file(&mut disk, ROOT, name, b"");
        }
        disk.cut(seed, 50);
        let names: Vec<String> = disk
            .directory(ROOT)
            .unwrap()
            .names()
            .keys()
            .map(|name| name.to_string_lossy().into())
            .collect();
        assert_eq!(names, ["0", "1", "2"][..names.len()], "the first ones");
        seen[names.len()] = true;
    }
    assert_eq!(seen, [true; 4]);
}

#[test]
fn a_failed_sync_leaves_what_it_covered_to_the_cache() {
    let mut disk = Disk::new();
    let ino = file(&mut disk, ROOT, "a", b"one");
    disk.sync(ROOT).unwrap();
    disk.fail_sync(ino).unwrap();
    disk.sync(ino).unwrap();
    assert_eq!(read(&mut disk, ROOT, "a").unwrap(), b"one");
    disk.cut(1, 100);
    assert_eq!(
        read(&mut disk, ROOT, "a").unwrap(),
        b"\0\0\0",
        "the length is durable, the bytes are not"
    );
}

#[test]
fn a_full_disk_takes_nothing_new() {
    let mut disk = Disk::new();
    let ino = file(&mut disk, ROOT, "a", b"one");
    disk.is_full = true;
    assert_eq!(disk.write(ino, 3, b"two"), Err(libc::ENOSPC));
    assert_eq!(disk.write(ino, 0, b"two"), Ok(()));
    let made = disk.create(ROOT, OsStr::new("b"), Kind::File(FileData::default()), 0o644, (0, 0));
    assert_eq!((made, disk.refused), (Err(libc::ENOSPC), 2));
}

#[test]
fn equal_seeds_keep_equal_parts() {
    let cut = |seed| {
        let mut disk = Disk::new();
        let ino = file(&mut disk, ROOT, "a", b"");
        disk.sync(ROOT).unwrap();
        disk.write(ino, 0, &[7; 64 * SECTOR as usize]).unwrap();
        disk.cut(seed, 50);
        read(&mut disk, ROOT, "a").unwrap()
    };
    assert_eq!(cut(5), cut(5));
    assert_ne!(cut(5), cut(6));
}
