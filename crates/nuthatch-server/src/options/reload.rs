//! Application of a changed configuration to a running server.

use super::Options;

/// Which changed settings apply at a reload, and which need a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReloadPlan {
    /// Keys whose new values apply at once (limits of connections: to new connections).
    pub now: Vec<&'static str>,
    /// Keys whose new values need a restart.
    pub restart: Vec<&'static str>,
}

impl ReloadPlan {
    /// True if nothing changed.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty() && self.restart.is_empty()
    }

    fn now(&mut self, key: &'static str, changed: bool) {
        if changed {
            self.now.push(key);
        }
    }

    fn restart(&mut self, key: &'static str, changed: bool) {
        if changed {
            self.restart.push(key);
        }
    }
}

impl Options {
    /// Compares running options with those of a reload.
    pub fn reload_diff(&self, new: &Options) -> ReloadPlan {
        let mut plan = ReloadPlan::default();
        self.diff_identity(new, &mut plan);
        self.diff_log(new, &mut plan);
        self.diff_auth(new, &mut plan);
        self.diff_limits(new, &mut plan);
        self.diff_jetstream(new, &mut plan);
        plan
    }

    fn diff_identity(&self, new: &Options, plan: &mut ReloadPlan) {
        plan.restart("host", self.host != new.host);
        plan.restart("port", self.port != new.port);
        plan.restart("server_name", self.server_name != new.server_name);
        plan.now("client_advertise", self.client_advertise != new.client_advertise);
        plan.now("server_tags", self.server_tags != new.server_tags);
        plan.now("server_metadata", self.server_metadata != new.server_metadata);
        plan.now("pid_file", self.pid_file != new.pid_file);
        plan.now("ports_file_dir", self.ports_file_dir != new.ports_file_dir);
        plan.restart("no_header_support", self.no_header_support != new.no_header_support);
        plan.restart("proxy_protocol", self.proxy_protocol != new.proxy_protocol);
        plan.restart("http", self.monitor != new.monitor);
        plan.restart("console", self.console != new.console);
        plan.restart("otlp", self.otlp != new.otlp);
        plan.restart("cluster", self.cluster != new.cluster);
        plan.now("lame_duck_duration", self.lame_duck_duration != new.lame_duck_duration);
        let (old_grace, new_grace) = (self.lame_duck_grace_period, new.lame_duck_grace_period);
        plan.now("lame_duck_grace_period", old_grace != new_grace);
    }

    fn diff_log(&self, new: &Options, plan: &mut ReloadPlan) {
        let (old, new) = (&self.log, &new.log);
        plan.now("debug", old.debug != new.debug);
        plan.now("trace", old.trace != new.trace);
        plan.now("trace_verbose", old.trace_verbose != new.trace_verbose);
        plan.now("trace_headers", old.trace_headers != new.trace_headers);
        plan.now("log_format", old.format != new.format);
        plan.now("logtime", old.logtime != new.logtime);
        plan.now("logtime_utc", old.logtime_utc != new.logtime_utc);
        plan.now("log_file", old.file != new.file);
        let (old_limit, new_limit) = (old.file_size_limit_bytes, new.file_size_limit_bytes);
        plan.now("logfile_size_limit", old_limit != new_limit);
        plan.now("logfile_max_num", old.file_max_count != new.file_max_count);
        plan.now("max_traced_msg_len", old.max_traced_msg_bytes != new.max_traced_msg_bytes);
    }

    fn diff_auth(&self, new: &Options, plan: &mut ReloadPlan) {
        plan.now("tls", self.tls != new.tls);
        plan.now("allow_non_tls", self.allow_non_tls != new.allow_non_tls);
        plan.now("ocsp", self.ocsp != new.ocsp);
        plan.now("ocsp_cache", self.ocsp_cache != new.ocsp_cache);
        let place = |o: &Options| o.websocket.as_ref().map(|ws| (ws.host.clone(), ws.port));
        let same_place = place(self) == place(new);
        plan.restart("websocket", !same_place);
        plan.now("ready_timeout", self.ready_timeout != new.ready_timeout);
        plan.now("websocket", same_place && self.websocket != new.websocket);
        plan.restart("leafnodes", self.leafnodes != new.leafnodes);
        plan.now("authorization", self.auth != new.auth);
        plan.now("proxies", self.proxies != new.proxies);
        plan.now("accounts", self.accounts != new.accounts);
        self.diff_operator(new, plan);
        plan.now("mappings", self.mappings != new.mappings);
        plan.restart("system_account", self.system_account != new.system_account);
    }

    fn diff_operator(&self, new: &Self, plan: &mut ReloadPlan) {
        let none = super::OperatorOptions::default();
        let old = self.operator.as_ref().unwrap_or(&none);
        let new = new.operator.as_ref().unwrap_or(&none);
        plan.restart("operator", old.operators != new.operators);
        plan.restart("trusted_keys", old.trusted_keys != new.trusted_keys);
        plan.restart("resolver", old.resolver != new.resolver);
        plan.now("resolver_preload", old.preload != new.preload);
        plan.now("resolver_pinned_accounts", old.pinned_accounts != new.pinned_accounts);
        plan.now("default_sentinel", old.default_sentinel != new.default_sentinel);
    }

    fn diff_limits(&self, new: &Options, plan: &mut ReloadPlan) {
        let (old, new) = (&self.limits, &new.limits);
        plan.now("max_payload", old.max_payload_bytes != new.max_payload_bytes);
        plan.now("max_pending", old.max_pending_bytes != new.max_pending_bytes);
        plan.now("max_control_line", old.max_control_line_bytes != new.max_control_line_bytes);
        plan.now("max_connections", old.max_connections != new.max_connections);
        plan.now("max_subscriptions", old.max_subscriptions != new.max_subscriptions);
        plan.now("max_sub_tokens", old.max_subscription_tokens != new.max_subscription_tokens);
        plan.now("ping_interval", old.ping_interval != new.ping_interval);
        plan.now("ping_max", old.ping_max != new.ping_max);
        plan.now("write_deadline", old.write_deadline != new.write_deadline);
        let (old_stall, new_stall) = (old.no_fast_producer_stall, new.no_fast_producer_stall);
        plan.now("no_fast_producer_stall", old_stall != new_stall);
        plan.restart("max_closed_clients", old.max_closed_clients != new.max_closed_clients);
    }

    fn diff_jetstream(&self, new: &Options, plan: &mut ReloadPlan) {
        let (old, new) = (&self.jetstream, &new.jetstream);
        plan.restart("jetstream", old.enabled != new.enabled);
        plan.restart("store_dir", old.store_dir != new.store_dir);
        plan.restart("store", old.store != new.store);
        plan.restart("tier", old.tier != new.tier);
        plan.restart("cache", old.cache != new.cache);
        plan.restart("logs", old.logs != new.logs);
        plan.restart("domain", old.domain != new.domain);
        plan.restart("sync_interval", old.sync != new.sync);
        plan.restart("compression", old.compression != new.compression);
        plan.restart("key", old.keys != new.keys);
        plan.now("unique_tag", old.unique_tag != new.unique_tag);
        plan.restart("strict", old.strict != new.strict);
        plan.restart("max_memory_store", old.max_memory_bytes != new.max_memory_bytes);
        plan.restart("max_file_store", old.max_store_bytes != new.max_store_bytes);
        plan.restart("limits", old.limits != new.limits);
    }
}
