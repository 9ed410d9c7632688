//! A campaign in which one of the systems dies.

use std::thread;
use std::time::Duration;

use super::*;
use crate::mq::metrics::Metrics;
use crate::mq::node::{self, NodePlan, Role, Schedule};
use crate::mq::processes::Setting;
use crate::mq::result::MqResult;
use crate::mq::stamp::{MESSAGE_CHARS, unix_ns};
use crate::queue::fake::{FakeQueue, Faults};

/// A measurement by the mqperf method of a queue in memory that dies when `peer` is Redis.
fn measure_fake(peer: &'static Peer, work: &Work) -> Result<job::Outcomes, BenchError> {
    let die_at = (peer.name == "redis").then_some(10);
    let send_delay = Duration::from_millis(1);
    let queue = FakeQueue::new(Faults { send_delay, die_at, ..Faults::default() });
    let schedule = Schedule {
        start_ns: unix_ns(),
        warmup: Duration::ZERO,
        window: Duration::from_millis(150),
        windows: 1,
        idle: Duration::from_millis(50),
        drain_limit: Duration::from_secs(5),
    };
    let (batch, size, rate) = (10, MESSAGE_CHARS, None);
    let plan = |role| NodePlan { role, node: 0, threads: 1, schedule, batch, size, rate };
    let nodes = thread::scope(|scope| {
        let run = |role| {
            let (queue, plan) = (&queue, plan(role));
            scope.spawn(move || node::run(queue, &plan, &Metrics::default()))
        };
        [run(Role::Sender), run(Role::Receiver)].map(|thread| thread.join().unwrap())
    });
    let outcome = job::mq_outcome(&MqResult::of(&nodes))?;
    Ok(vec![(work.variant(), outcome)])
}

fn works() -> Vec<Work> {
    let text = include_str!("../../../../bench/campaigns/seeds-short.toml");
    let campaign = Campaign::parse(text).unwrap();
    let works = campaign.works().unwrap();
    works.into_iter().filter(|work| matches!(work, Work::Mq(..))).take(1).collect()
}

#[test]
fn a_system_that_dies_is_a_failed_row_and_the_rest_goes_on() {
    let systems = ["redis", "nats", "postgres"].map(str::to_owned);
    let peers: Vec<_> = systems.iter().map(|name| Peer::named(name).unwrap()).collect();
    let progress = Progress { bar: None };
    let mut runs = Vec::new();
    for repeat in 1..=2 {
        run_repeat(&works(), &peers, repeat, &progress, measure_fake, |more| {
            runs.extend(more);
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(runs.len(), 6);
    let groups = outcome::groups(&runs, &systems);
    let [group] = &groups[..] else { panic!("{groups:?}") };
    let [redis, nats, postgres] = &group.cells[..] else { panic!("{group:?}") };
    assert_eq!((redis.succeeded, redis.tried), (0, 2));
    assert!(redis.remarks[0].contains("connection refused"), "{:?}", redis.remarks);
    for cell in [nats, postgres] {
        assert_eq!((cell.succeeded, cell.tried), (2, 2));
        assert!(cell.metrics["receive msgs/s"].min > 0.0 && cell.remarks.is_empty());
    }
    let page = html::page(&results(runs), &groups);
    assert!(page.contains("FAILED") && page.contains("connection refused"));
}

fn results(runs: Vec<SystemRun>) -> Results {
    Results {
        name: "test".into(),
        note: String::new(),
        repeats: 2,
        finished: now(),
        machine: Machine::read(&[]),
        limits: Vec::new(),
        loads: vec![7.0],
        systems: Vec::new(),
        missing: vec!["kafka is not installed".into()],
        runs,
    }
}

#[test]
fn what_took_too_long_is_not_repeated() {
    let too_long = TooLong::default();
    let key = |variant: &str| ("redis", "mq (seed 004)", variant.to_owned());
    let slow = || Err(BenchError::TooLong(Duration::from_secs(1)));
    assert!(matches!(once_if_too_long(&too_long, key("a"), slow), Err(BenchError::TooLong(_))));
    let again = once_if_too_long(&too_long, key("a"), || panic!("it was tried again"));
    assert!(again.unwrap_err().to_string().contains("not repeated"));
    // Another failure may pass, and another variant has nothing to do with it.
    let refused = || Err(BenchError::Failed("refused".into()));
    assert!(once_if_too_long(&too_long, key("b"), refused).is_err());
    assert!(once_if_too_long(&too_long, key("b"), || Ok(Vec::new())).is_ok());
}

#[test]
fn a_report_is_drawn_again_from_its_results() {
    let dir = std::env::temp_dir().join(format!("redraw-{:x}", nuthatch_client::random_u64()));
    let outcome = Outcome { metrics: [("msgs/s".to_owned(), 5.0)].into(), ..Outcome::default() };
    let run = |result| SystemRun {
        section: "mq (seed 004)".into(),
        variant: "v".into(),
        system: "redis".into(),
        repeat: 1,
        result,
    };
    let mut all = results(vec![run(Ok(outcome)), run(Err("gone".into()))]);
    all.systems = vec![System {
        name: "redis".into(),
        what: String::new(),
        version: String::new(),
        config: String::new(),
        guarantee: "replicated: no; fsync: no".into(),
        package: String::new(),
    }];
    write(&all, &dir).unwrap();
    let first = fs::read_to_string(dir.join("report.html")).unwrap();
    fs::remove_file(dir.join("report.html")).unwrap();
    let markdown = dir.join("page.md");
    fs::write(&markdown, "top\n<!-- campaign:begin -->\n<!-- campaign:end -->\nend\n").unwrap();
    redraw(&ReportArgs { dir: dir.clone(), markdown: Some(markdown.clone()) }).unwrap();
    let page = fs::read_to_string(markdown).unwrap();
    assert!(page.starts_with("top\n") && page.ends_with("\nend\n"));
    assert!(page.contains("| redis | no | – | 5.00 | 1 of 2 |"), "{page}");
    assert!(page.contains("- redis: FAILED: gone"), "{page}");
    assert_eq!(fs::read_to_string(dir.join("report.html")).unwrap(), first);
    assert!(first.contains("redis") && first.contains("FAILED: gone"));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn losses_that_the_repeats_agree_on_are_listed() {
    let run = |system: &str, repeat, per_s| SystemRun {
        section: "mq (seed 004)".into(),
        variant: "v".into(),
        system: system.into(),
        repeat,
        result: Ok(Outcome {
            metrics: [("receive msgs/s".to_owned(), per_s)].into(),
            ..Outcome::default()
        }),
    };
    let numbers = [("a", 50.0, 60.0), ("b", 100.0, 120.0), ("c", 55.0, 90.0), ("d", 1.0, 2.0)];
    let system = |name: &str| System {
        name: name.into(),
        what: String::new(),
        version: String::new(),
        config: String::new(),
        guarantee: "replicated: no; fsync: before the ack".into(),
        package: String::new(),
    };
    let runs = numbers.iter().flat_map(|(name, one, two)| [run(name, 1, *one), run(name, 2, *two)]);
    let mut all = results(runs.collect());
    all.systems = numbers.iter().map(|(name, ..)| system(name)).collect();
    let page = markdown::page(&all, &gathered(&all));
    let losses = page.split("### Where a is worse").nth(1).unwrap().split("###").next().unwrap();
    let rows: Vec<&str> = losses.lines().filter(|line| line.starts_with("| 0")).collect();
    assert_eq!(rows, ["| 0.50× | b | before the answer | mq (seed 004): v | receive msgs/s |"]);
}

#[test]
fn nobody_is_always_first() {
    let peers: Vec<_> = ["redis", "nats"].iter().map(|name| Peer::named(name).unwrap()).collect();
    let mut runs = Vec::new();
    let one = |_: &'static Peer, work: &Work| Ok(vec![(work.variant(), Outcome::default())]);
    for repeat in 1..=2 {
        run_repeat(&works(), &peers, repeat, &Progress { bar: None }, one, |more| {
            runs.extend(more);
            Ok(())
        })
        .unwrap();
    }
    let order: Vec<_> = runs.iter().map(|run| run.system.as_str()).collect();
    assert_eq!(order, ["redis", "nats", "nats", "redis"]);
}

#[test]
fn a_setting_is_shown_as_the_seed_counts() {
    let setting = Setting::parse("25/5:8:16").unwrap();
    let Some(Work::Mq(_, plan)) = works().into_iter().next() else { panic!("no mq") };
    let text = plan::mq_variant(&setting, &plan);
    assert_eq!(text, "25/5 thread(s) per node, 8 sender and 16 receiver node(s)");
}
