//! A catalog's objects in etcd.

use crate::catalog_error::CatalogError;
use crate::catalog_store::{CatalogStore, Object};
use bytes::Bytes;
use nuthatch_etcd::{Address, Creation, Etcd, OpenError, Settings};
use nuthatch_log::Reporter;

/// Opens the etcd of an address, with the settings of the environment. It need not be there yet.
pub(crate) fn open(address: &str, report: &Reporter) -> Result<Etcd, OpenError> {
    let (address, settings) = (Address::parse(address)?, Settings::from_environment()?);
    if settings.credentials.is_some() && !address.tls {
        report.say(
            "the password of etcd goes over the network in plain text: etcds:// would hide it",
        );
    }
    Etcd::open(address, settings)
}

fn theirs(object: &Object) -> nuthatch_etcd::Object {
    nuthatch_etcd::Object { key: object.key.clone(), bytes: object.bytes.clone() }
}

fn set_back(before: Option<&Object>) -> CatalogError {
    CatalogError::SetBack { key: before.map(|before| before.key.clone()).unwrap_or_default() }
}

impl CatalogStore for Etcd {
    fn get(&self, key: &str) -> Result<Option<Bytes>, CatalogError> {
        Ok(self.get(key)?)
    }

    fn list(&self, under: &str) -> Result<Vec<String>, CatalogError> {
        Ok(self.list(under)?)
    }

    fn create(&self, object: &Object, before: Option<&Object>) -> Result<bool, CatalogError> {
        match self.create(&theirs(object), before.map(theirs).as_ref())? {
            Creation::Done => Ok(true),
            Creation::Taken => Ok(false),
            Creation::SetBack => Err(set_back(before)),
        }
    }

    fn read_on(&self, before: &Object, next: &str) -> Result<Vec<Object>, CatalogError> {
        let found = self.read_on(&theirs(before), next)?.ok_or_else(|| set_back(Some(before)))?;
        let ours = |object: nuthatch_etcd::Object| Object { key: object.key, bytes: object.bytes };
        Ok(found.into_iter().map(ours).collect())
    }
}
