//! How a node finds the cluster that it belongs to, or takes part in founding it, and opens its catalogs.

use crate::any_catalog::AnyCatalog;
use crate::catalog::{
    CatalogError, CatalogStore, Founder, Founding, Fresh, NumberedCatalog, found, founding_of,
    is_founded,
};
use crate::catalog_trouble::CatalogTrouble;
use crate::config::{ClusterConfig, ConfigError, Logs, OtherBucket, is_in_etcd};
use crate::group::{self, BUILT_IN, Door, GroupCatalog};
use crate::in_bucket::{Binding, Mark};
use crate::life::Life;
use crate::roll::Roll;
use crate::routes::Routes;
use crate::start_error::StartError;
use crate::stored_joining;
use crate::stored_roster::StoredRoster;
use nuthatch_catalog_group::{LogCount, LogNumber};
use nuthatch_log::Reporter;
use nuthatch_log::env::{Disk, Entropy as _, SystemEntropy};
use nuthatch_object::{BucketError, BucketOptions, open_url};
use nuthatch_quorum::types::Incarnation;
use parking_lot::Mutex;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// How long one request to the catalog is repeated.
const CATALOG_RETRY: Duration = Duration::from_secs(2);

/// One attempt at it takes at most so long: others wait for the same log's catalog meanwhile.
const CATALOG_ATTEMPT: Duration = Duration::from_secs(5);

/// Names of nodes are waited for so long.
const FOUND_WITHIN: Duration = Duration::from_millis(500);

/// Between two looks whether all nodes have named their disks, or a catalog that is away is back.
const FOUNDING_POLL: Duration = Duration::from_millis(200);

/// The cluster that a node belongs to, and the way to its catalog.
pub(crate) struct Began {
    /// What it was founded with.
    pub(crate) founding: Founding,
    /// Who its nodes are now, and which of them this is.
    pub(crate) roll: Arc<Roll>,
    way: Way,
}

enum Way {
    Numbered(Arc<dyn CatalogStore>, Box<StoredRoster>),
    Group(Arc<Door>),
}

impl Began {
    /// The catalog of a log, whose `disk` remembers how far it was seen. Waits for one that is away.
    pub(crate) fn catalog(
        &self,
        log: LogNumber,
        disk: &dyn Disk,
        (life, report): (&Life, &Reporter),
    ) -> Result<AnyCatalog, StartError> {
        let store = match &self.way {
            Way::Numbered(store, _) => store,
            Way::Group(door) => return Ok(AnyCatalog::Group(GroupCatalog::open(door, log, disk)?)),
        };
        let mut trouble = CatalogTrouble::default();
        loop {
            match NumberedCatalog::open(Arc::clone(store), &self.founding, log, disk) {
                Ok(catalog) => {
                    trouble.passed(|text| report.say(text));
                    return Ok(AnyCatalog::Numbered(Arc::new(Mutex::new(catalog))));
                }
                Err(error) if error.may_pass() => trouble.met(&error, |text| report.say(text)),
                Err(error) => return Err(error.into()),
            }
            if life.pause(FOUNDING_POLL) {
                return Err(StartError::Ended);
            }
        }
    }

    /// Where it is said which log in a bucket a log is; none of one that is on disks or in memory.
    pub(crate) fn binding(&self, log: LogNumber) -> Option<Binding> {
        let is_in_bucket =
            self.founding.logs.are_in_bucket() && self.founding.logs.memory() != Some(log);
        match &self.way {
            Way::Numbered(store, _) if is_in_bucket => Some(Binding::new(Arc::clone(store), log)),
            _ => None,
        }
    }

    /// This node's part of the built-in catalog, if that is the one.
    pub(crate) fn door(&self) -> Option<Arc<Door>> {
        match &self.way {
            Way::Numbered(..) => None,
            Way::Group(door) => Some(Arc::clone(door)),
        }
    }

    /// The roster, where it is outside the nodes.
    pub(crate) fn into_roster(self) -> Option<StoredRoster> {
        match self.way {
            Way::Numbered(_, roster) => Some(*roster),
            Way::Group(_) => None,
        }
    }
}

/// Finds the cluster, or takes part in founding it. `keeper` is this node's disk as a keeper of the first log, and whether
/// nothing is on it.
pub(crate) fn begin(
    config: &ClusterConfig,
    listener: &TcpListener,
    (disk, (keeper, is_empty)): (&Arc<dyn Disk>, (Incarnation, bool)),
    (life, report): (&Life, &Reporter),
) -> Result<Began, StartError> {
    let routes = Arc::new(Routes::of(config.listen, config.routes.clone()));
    routes.look_up(life, report)?;
    // So that nobody is told of what is found at once.
    routes.wait(FOUND_WITHIN);
    if config.catalog != BUILT_IN {
        let store = open_catalog(config, report)?;
        let founding = founded(config, &routes, &*store, keeper, (life, report))?;
        check_home(config, &founding, (life, report))?;
        let (at, dir) = ((&store, &founding), (&*disk.label(), is_empty));
        let (roster, me) = stored_joining::belong(config, at, dir, &routes, (life, report))?;
        let roll = Roll::new(me, config.listen, routes, roster.roster().clone());
        let roll = Arc::new(roll.in_zone(config.zone.clone(), config.owner_zones.clone()));
        return Ok(Began { founding, roll, way: Way::Numbered(store, Box::new(roster)) });
    }
    let belongs = group::belong(config, &routes, listener, (keeper, &**disk), (life, report))?;
    let founder = |founder: &nuthatch_catalog_group::Founder| Founder {
        id: founder.id,
        name: founder.node.name.clone(),
        incarnation: founder.node.keeper,
    };
    let (cluster, logs) = (belongs.founding.cluster, belongs.founding.logs);
    let nodes = belongs.founding.founders.iter().map(founder).collect();
    let founding = Founding { cluster, nodes, logs, active: belongs.founding.active };
    let roll = Roll::new(belongs.number, config.listen, routes, belongs.roster.clone());
    let roll = Arc::new(roll.in_zone(config.zone.clone(), config.owner_zones.clone()));
    let door = group::start(config, belongs, &roll, (disk, life), report)?;
    Ok(Began { founding, roll, way: Way::Group(door) })
}

fn open_catalog(
    config: &ClusterConfig,
    report: &Reporter,
) -> Result<Arc<dyn CatalogStore>, StartError> {
    if is_in_etcd(&config.catalog) {
        return open_etcd(config, report);
    }
    let options = BucketOptions {
        retry_for: CATALOG_RETRY,
        attempt_timeout: CATALOG_ATTEMPT,
        report: report.clone(),
        ..BucketOptions::default()
    };
    Ok(Arc::new(open_url(&config.catalog, "cluster", options)?))
}

#[cfg(feature = "etcd")]
fn open_etcd(
    config: &ClusterConfig,
    report: &Reporter,
) -> Result<Arc<dyn CatalogStore>, StartError> {
    Ok(Arc::new(crate::etcd_store::open(&config.catalog, report)?))
}

#[cfg(not(feature = "etcd"))]
fn open_etcd(_: &ClusterConfig, _: &Reporter) -> Result<Arc<dyn CatalogStore>, StartError> {
    Err(StartError::NoEtcd)
}

/// Asks the bucket of the logs something, again while it is away.
fn asked<T>(
    store: &str,
    ask: impl Fn(&Mark) -> Result<T, BucketError>,
    (life, report): (&Life, &Reporter),
) -> Result<T, StartError> {
    let (mark, mut trouble) = (Mark::of(store)?, CatalogTrouble::default());
    loop {
        let error = match ask(&mark) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let failed = || StartError::Store { store: store.to_owned(), why: error.to_string() };
        let lasts = matches!(&error, BucketError::NotFound { .. } | BucketError::Closed);
        if lasts || error.is_refusal() {
            return Err(failed());
        }
        trouble.met_text(failed().to_string(), |text| report.say(text));
        if life.pause(FOUNDING_POLL) {
            return Err(StartError::Ended);
        }
    }
}

/// What a cluster is to be called if this node founds it: what the bucket of its logs is marked with. A bucket is marked
/// only while no cluster is founded. The inner error is of the catalog, which may pass.
fn identity(
    config: &ClusterConfig,
    catalog: &dyn CatalogStore,
    of: (&Life, &Reporter),
) -> Result<Result<u128, CatalogError>, StartError> {
    let (fresh, Some(store)) = (random(), &config.store) else { return Ok(Ok(random())) };
    match is_founded(catalog) {
        Ok(true) => return Ok(Ok(fresh)),
        Ok(false) => {}
        Err(error) => return Ok(Err(error)),
    }
    let made = asked(store, |mark| mark.make(fresh, &config.catalog), of)?;
    made.map(Ok).map_err(|there| other_bucket(config, there, None))
}

fn other_bucket(config: &ClusterConfig, there: String, here: Option<u128>) -> StartError {
    let (store, catalog) = (config.store.clone().unwrap_or_default(), config.catalog.clone());
    ConfigError::OtherBucket(Box::new(OtherBucket { store, there, here, catalog })).into()
}

/// Refuses a cluster whose logs are elsewhere than this node is set up for.
fn check_home(
    config: &ClusterConfig,
    founding: &Founding,
    of: (&Life, &Reporter),
) -> Result<(), StartError> {
    if founding.logs.are_in_bucket() != config.store.is_some() {
        return Err(ConfigError::OtherHome { in_bucket: config.store.is_some() }.into());
    }
    let Some(store) = &config.store else { return Ok(()) };
    match asked(store, Mark::read, of)? {
        Some((Some(id), _)) if id == founding.cluster => Ok(()),
        Some((_, said)) => {
            Err(other_bucket(config, format!("cluster {said}"), Some(founding.cluster)))
        }
        None => Err(other_bucket(config, "nobody".to_owned(), Some(founding.cluster))),
    }
}

fn founded(
    config: &ClusterConfig,
    routes: &Routes,
    store: &dyn CatalogStore,
    keeper: Incarnation,
    (life, report): (&Life, &Reporter),
) -> Result<Founding, StartError> {
    let (mut told, mut trouble) = (String::new(), CatalogTrouble::default());
    let mut cluster = None;
    loop {
        let size = routes.size();
        let founds = size.filter(|size| config.may_found(*size));
        let (count, logs) = match founds {
            Some(size) => (size, config.founds(size)?),
            None => (0, LogCount::ONE),
        };
        // A node that founds nothing with its routes, as far as these are known, names no disk either: there would be one too
        // many. It waits for a cluster, and joins that.
        let found = match founds.is_none() {
            true => founding_of(store),
            false => {
                let fresh = match cluster {
                    Some(cluster) => Ok(cluster),
                    None => identity(config, store, (life, report))?,
                };
                cluster = fresh.as_ref().ok().copied();
                let newest = config.protocol_max;
                let fresh = fresh.map(|cluster| Fresh { cluster, logs, newest });
                fresh.and_then(|fresh| found(store, &config.name, keeper, count, fresh))
            }
        };
        match found {
            Ok(Some(founding)) => {
                trouble.passed(|text| report.say(text));
                return Ok(founding);
            }
            Ok(None) => {
                trouble.passed(|text| report.say(text));
                let text = match (founds, size) {
                    (Some(count), _) => format!(
                        "the cluster is founded when all of its {count} nodes have started once"
                    ),
                    (None, Some(count)) => format!(
                        "this node and its routes are {count}: so many found no cluster (3 or 5 do). It joins one as soon \
                         as there is one in the catalog"
                    ),
                    (None, None) => routes.told_not_found(),
                };
                if text != told {
                    report.say(&text);
                    told = text;
                }
            }
            Err(error) if error.may_pass() => trouble.met(&error, |text| report.say(text)),
            Err(error) => return Err(error.into()),
        }
        if life.pause(FOUNDING_POLL) {
            return Err(StartError::Ended);
        }
    }
}

/// Says that a cluster has another number of logs than this node is set up to found one with.
pub(crate) fn tell_count(
    config: &ClusterConfig,
    founding: &Founding,
    roll: &Roll,
    report: &Reporter,
) {
    let logs = founding.logs.get();
    // Who leaves it at the default has no wish.
    let has_wish = config.logs != Logs::default();
    let size = roll.routes().size().filter(|size| has_wish && config.may_found(*size));
    let wanted = size.map(|size| config.logs.of(size));
    if let Some(wanted) = wanted.filter(|wanted| *wanted != logs) {
        report.say(&format!(
            "the cluster was founded with {logs} quorum logs and keeps them, though this node is set up for {wanted}: \
             that counts only when a cluster is founded"
        ));
    }
}

pub(crate) fn random() -> u128 {
    let mut entropy = SystemEntropy::default();
    u128::from(entropy.next()) << 64 | u128::from(entropy.next())
}
