//! Puts the parts of the service together: each gets those below it that it uses.

use crate::account::AccountInfos;
use crate::account_table::AccountTable;
use crate::admission::Admission;
use crate::api_stats::ApiStats;
use crate::changing::ChangeRights;
use crate::consumers::ConsumerCalls;
use crate::copy_tasks::CopyTasks;
use crate::core_port::CorePort;
use crate::elections::Elections;
use crate::import_table::ImportTable;
use crate::imports::StreamImports;
use crate::infos::Infos;
use crate::lists::Lists;
use crate::load::Loading;
use crate::log_calls::LogCalls;
use crate::log_names::LogNames;
use crate::logs_port::LogsPort;
use crate::move_table::Moves;
use crate::moves::apart::{Apart, Undecided};
use crate::moves::targets::Targets;
use crate::moves::{RAISING_AT_ONCE, StreamMoves};
use crate::origins::Origins;
use crate::other_nodes::OtherNodes;
use crate::placing::Placing;
use crate::replicas::Replicas;
use crate::replication::Replication;
use crate::restore::Restores;
use crate::snapshot::Snapshots;
use crate::step_down::StepDowns;
use crate::stream_table::StreamTable;
use crate::streams::StreamCalls;
use crate::transfers::Transfers;
use crate::view::View;
use nuthatch_protocol::js::Nanos;
use nuthatch_server::shares::Shares;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What parts are told of the configuration.
pub(super) struct Facts {
    /// Unknown JSON fields are errors.
    pub(super) strict: bool,
    /// JetStream domain, empty if none.
    pub(super) domain: String,
    /// Version reported in metadata.
    pub(super) version: String,
    /// Longest duplicate window of a stream, ns; 0: no limit.
    pub(super) max_duplicate_window: Nanos,
}

/// What several parts use. Nothing but the making of parts sees it as a whole.
pub(super) struct Parts {
    pub(super) facts: Facts,
    pub(super) core: Arc<dyn CorePort>,
    pub(super) logs: Arc<dyn LogsPort>,
    pub(super) accounts: Arc<AccountTable>,
    pub(super) names: Arc<LogNames>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) move_table: Arc<Moves>,
    pub(super) copies: Arc<CopyTasks>,
    pub(super) calls: Arc<LogCalls>,
    pub(super) rights: Arc<ChangeRights>,
    pub(super) nodes: Arc<OtherNodes>,
    pub(super) replicas: Arc<Replicas>,
    pub(super) origins: Arc<Origins>,
    pub(super) stats: Arc<ApiStats>,
    pub(super) elections: Arc<Elections>,
}

impl Parts {
    pub(super) fn new(
        facts: Facts,
        (core, logs): (Arc<dyn CorePort>, Arc<dyn LogsPort>),
        accounts: AccountTable,
        (lazy_logs, node): (Vec<String>, (Option<String>, bool)),
    ) -> Self {
        let streams = Arc::new(StreamTable::new(logs.clone()));
        let names = Arc::new(LogNames::new(logs.clone(), lazy_logs, node));
        let move_table = Arc::<Moves>::default();
        let calls = Arc::new(LogCalls::new(logs.clone(), streams.clone(), move_table.clone()));
        let accounts = Arc::new(accounts);
        let nodes = Arc::new(OtherNodes::new(core.clone(), logs.clone()));
        let origins = Origins::new(core.clone(), streams.clone(), nodes.clone(), &facts.domain);
        Self {
            elections: Arc::new(Elections {
                domain: facts.domain.clone(),
                core: core.clone(),
                accounts: accounts.clone(),
                names: names.clone(),
                streams: streams.clone(),
                calls: calls.clone(),
                turns: Default::default(),
                told: Default::default(),
            }),
            accounts,
            copies: Arc::default(),
            calls,
            rights: Arc::new(ChangeRights::new(names.clone())),
            replicas: Arc::new(Replicas::new(core.clone(), names.clone())),
            origins: Arc::new(origins),
            stats: Arc::default(),
            facts,
            core,
            logs,
            names,
            streams,
            move_table,
            nodes,
        }
    }

    pub(super) fn infos(&self) -> Infos {
        Infos {
            core: self.core.clone(),
            domain: self.facts.domain.clone(),
            version: self.facts.version.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            moves: self.move_table.clone(),
            copies: self.copies.clone(),
            replicas: self.replicas.clone(),
        }
    }

    pub(super) fn admission(&self) -> Admission {
        Admission {
            strict: self.facts.strict,
            max_duplicate_window: self.facts.max_duplicate_window,
            core: self.core.clone(),
            accounts: self.accounts.clone(),
            streams: self.streams.clone(),
            rights: self.rights.clone(),
            nodes: self.nodes.clone(),
            calls: self.calls.clone(),
            replicas: self.replicas.clone(),
        }
    }

    pub(super) fn placing(&self) -> Placing {
        let (core, names) = (self.core.clone(), self.names.clone());
        Placing::new(core, names, self.streams.clone(), self.replicas.clone())
    }

    pub(super) fn moves(&self) -> StreamMoves {
        StreamMoves {
            strict: self.facts.strict,
            core: self.core.clone(),
            logs: self.logs.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            rights: self.rights.clone(),
            table: self.move_table.clone(),
            apart: Arc::new(self.apart()),
            targets: self.targets(),
            nodes: self.nodes.clone(),
            placing: self.placing(),
            raising: Arc::new(Semaphore::new(RAISING_AT_ONCE)),
        }
    }

    fn targets(&self) -> Targets {
        let core = self.core.clone();
        Targets {
            logs: self.logs.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            nodes: self.nodes.clone(),
            all: Box::new(move || core.quorum_logs()),
        }
    }

    fn apart(&self) -> Apart {
        Apart {
            core: self.core.clone(),
            logs: self.logs.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            nodes: self.nodes.clone(),
            table: self.move_table.clone(),
            undecided: Undecided::default(),
        }
    }

    pub(super) fn stream_calls(
        &self,
        (admission, placing): (&Arc<Admission>, &Arc<Placing>),
        infos: &Arc<Infos>,
        moves: &Arc<StreamMoves>,
    ) -> StreamCalls {
        StreamCalls {
            strict: self.facts.strict,
            accounts: self.accounts.clone(),
            logs: self.logs.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            rights: self.rights.clone(),
            nodes: self.nodes.clone(),
            replicas: self.replicas.clone(),
            placing: placing.clone(),
            admission: admission.clone(),
            origins: self.origins.clone(),
            infos: infos.clone(),
            moves: moves.clone(),
            elections: self.elections.clone(),
        }
    }

    pub(super) fn consumers(&self, infos: &Arc<Infos>) -> ConsumerCalls {
        ConsumerCalls {
            strict: self.facts.strict,
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            infos: infos.clone(),
            replicas: self.replicas.clone(),
            elections: self.elections.clone(),
        }
    }

    pub(super) fn lists(&self, infos: &Arc<Infos>) -> Lists {
        Lists {
            strict: self.facts.strict,
            core: self.core.clone(),
            streams: self.streams.clone(),
            nodes: self.nodes.clone(),
            calls: self.calls.clone(),
            infos: infos.clone(),
        }
    }

    pub(super) fn account_infos(&self, requests: &Arc<Shares>) -> AccountInfos {
        AccountInfos {
            domain: self.facts.domain.clone(),
            accounts: self.accounts.clone(),
            stats: self.stats.clone(),
            requests: requests.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            nodes: self.nodes.clone(),
        }
    }

    pub(super) fn step_downs(&self) -> StepDowns {
        StepDowns {
            strict: self.facts.strict,
            core: self.core.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
        }
    }

    pub(super) fn transfers(&self) -> Transfers {
        Transfers::new(self.core.clone(), self.streams.clone(), &self.facts.domain)
    }

    pub(super) fn snapshots(&self, transfers: &Arc<Transfers>) -> Snapshots {
        Snapshots {
            strict: self.facts.strict,
            core: self.core.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            transfers: transfers.clone(),
        }
    }

    pub(super) fn restores(
        &self,
        (admission, placing): (&Arc<Admission>, &Arc<Placing>),
        infos: &Arc<Infos>,
        transfers: &Arc<Transfers>,
    ) -> Restores {
        Restores {
            strict: self.facts.strict,
            core: self.core.clone(),
            accounts: self.accounts.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            rights: self.rights.clone(),
            admission: admission.clone(),
            origins: self.origins.clone(),
            placing: placing.clone(),
            infos: infos.clone(),
            transfers: transfers.clone(),
            stats: self.stats.clone(),
            elections: self.elections.clone(),
        }
    }

    pub(super) fn imports(
        &self,
        (admission, placing): (&Arc<Admission>, &Arc<Placing>),
        infos: &Arc<Infos>,
    ) -> StreamImports {
        StreamImports {
            strict: self.facts.strict,
            accounts: self.accounts.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            rights: self.rights.clone(),
            admission: admission.clone(),
            origins: self.origins.clone(),
            placing: placing.clone(),
            infos: infos.clone(),
            table: Arc::new(ImportTable::new(self.logs.clone())),
            elections: self.elections.clone(),
        }
    }

    pub(super) fn loading(&self, imports: &StreamImports, moves: &Arc<StreamMoves>) -> Loading {
        Loading {
            core: self.core.clone(),
            logs: self.logs.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            rights: self.rights.clone(),
            imports: imports.table.clone(),
            moves: moves.clone(),
        }
    }

    pub(super) fn view(&self, infos: &Arc<Infos>) -> View {
        View {
            accounts: self.accounts.clone(),
            names: self.names.clone(),
            streams: self.streams.clone(),
            logs: self.logs.clone(),
            calls: self.calls.clone(),
            infos: infos.clone(),
            moves: self.move_table.clone(),
            stats: self.stats.clone(),
        }
    }

    pub(super) fn replication(&self) -> Replication {
        Replication {
            domain: self.facts.domain.clone(),
            accounts: self.accounts.clone(),
            core: self.core.clone(),
            streams: self.streams.clone(),
            calls: self.calls.clone(),
            origins: self.origins.clone(),
            copies: self.copies.clone(),
        }
    }
}
