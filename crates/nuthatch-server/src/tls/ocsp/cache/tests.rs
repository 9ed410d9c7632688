use super::*;

fn options(name: &str) -> OcspCache {
    let directory =
        std::env::temp_dir().join(format!("nuthatch-ocsp-cache-{name}-{}", std::process::id()));
    OcspCache { local_store: directory, ..OcspCache::default() }
}

fn response(status: Status) -> Response {
    let next_update = Some(UNIX_EPOCH + Duration::from_secs(4_000_000_000));
    Response { status, this_update: UNIX_EPOCH, next_update }
}

#[test]
fn what_is_kept_survives_a_restart() {
    let options = options("restart");
    let cache = PeerCache::new(&options, false).unwrap();
    cache.load().unwrap();
    for (key, status) in [("a", Status::Good), ("b", Status::Revoked), ("c", Status::Unknown)] {
        cache.put(key.to_owned(), format!("CN={key}"), key.as_bytes(), &response(status));
    }
    cache.save().unwrap();
    let again = PeerCache::new(&options, false).unwrap();
    again.load().unwrap();
    assert_eq!(again.get("b").as_deref(), Some(&b"b"[..]));
    assert_eq!(again.get("d"), None);
    let expected = CacheStats { hits: 1, misses: 1, goods: 1, revokes: 1, unknowns: 1 };
    assert_eq!(again.stats(), expected);
    let text = fs::read_to_string(options.local_store.join(FILE)).unwrap();
    fs::write(options.local_store.join(FILE), &text[..text.len() / 2]).unwrap();
    let broken = PeerCache::new(&options, false).unwrap();
    assert!(broken.load().is_err());
    assert_eq!(broken.get("a"), None);
    fs::remove_dir_all(&options.local_store).unwrap();
}

#[test]
fn a_file_of_nats_server_is_read() {
    // "hello" as Go's S2 writer puts it: one chunk that is not compressed.
    let mut packed = b"\xff\x06\x00\x00S2sTwO".to_vec();
    let crc = crc_fast::crc32_iscsi(b"hello").rotate_right(15).wrapping_add(0xa282_ead8);
    packed.extend([1, 9, 0, 0]);
    packed.extend(crc.to_le_bytes());
    packed.extend(b"hello");
    let stored = Stored {
        subject: "CN=x".to_owned(),
        cached_at: "2026-11-27T08:00:00Z".to_owned(),
        resp_status: "revoked".to_owned(),
        resp_expires: NO_TIME.to_owned(),
        resp: STANDARD.encode(&packed),
    };
    let entry = restored(stored).unwrap();
    assert_eq!((&*entry.raw, entry.status, entry.expires), (&b"hello"[..], Status::Revoked, None));
}

#[test]
fn it_is_bounded_and_revocations_stay_longest() {
    let cache =
        PeerCache::new(&OcspCache { preserve_revoked: true, ..options("bound") }, false).unwrap();
    cache.put("bad".to_owned(), String::new(), b"x", &response(Status::Revoked));
    for n in 0..CACHED_RESPONSES_MAX {
        cache.put(n.to_string(), String::new(), b"y", &response(Status::Good));
    }
    assert_eq!(cache.stats().goods as usize, CACHED_RESPONSES_MAX - 1);
    assert!(cache.get("bad").is_some() && cache.get("1").is_some());
    assert_eq!(cache.get("0"), None);
    let large = vec![0; 64 * 1024];
    for n in 0..CACHED_BYTES_MAX / large.len() + 2 {
        cache.put(format!("large {n}"), String::new(), &large, &response(Status::Good));
    }
    assert!(cache.entries.lock().bytes <= CACHED_BYTES_MAX);
    cache.reject("bad");
    assert!(cache.get("bad").is_some(), "it is preserved");
    for keeps in [false, true] {
        let cache = PeerCache::new(&options("forgets"), keeps).unwrap();
        cache.put("bad".to_owned(), String::new(), b"x", &response(Status::Revoked));
        cache.reject("bad");
        assert_eq!(cache.get("bad").is_some(), keeps);
    }
}

#[test]
fn those_who_write_at_a_time_do_not_mix() {
    let options = options("writers");
    let caches: Vec<_> = (0..4).map(|_| PeerCache::new(&options, false).unwrap()).collect();
    std::thread::scope(|scope| {
        for (number, cache) in caches.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..20 {
                    let raw = vec![0; 1000 * (number + 1)];
                    cache.put(round.to_string(), String::new(), &raw, &response(Status::Good));
                    cache.save().unwrap();
                }
            });
        }
    });
    PeerCache::new(&options, false).unwrap().load().unwrap();
    let files: Vec<_> =
        fs::read_dir(&options.local_store).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, [FILE]);
    fs::remove_dir_all(&options.local_store).unwrap();
}
