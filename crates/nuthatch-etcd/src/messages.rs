//! What of etcd's API (`etcdserverpb/rpc.proto`) is spoken here: transactions of reads and conditional writes, and how a
//! user gets a token. Fields that are not set are left out.

/// `Compare.CompareTarget`: when a key was created; 0: it is not there.
pub(crate) const TARGET_CREATE: i32 = 1;

/// `Compare.CompareTarget`: its value. Of a key that is not there it never fits.
pub(crate) const TARGET_VALUE: i32 = 3;

/// A range of keys, or the one key where there is no end.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: bytes::Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) value: bytes::Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: bytes::Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: bytes::Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2")]
    pub(crate) request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseOp {
    /// None: of something that was not read.
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
}

/// A comparison; here always for equality, which is 0 and left out.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) key: bytes::Bytes,
    #[prost(oneof = "CompareWith", tags = "5, 7")]
    pub(crate) with: Option<CompareWith>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum CompareWith {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(bytes::Bytes),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

/// The key alone.
pub(crate) fn get(key: &bytes::Bytes) -> RequestOp {
    range(RangeRequest { key: key.clone(), ..RangeRequest::default() })
}

pub(crate) fn range(request: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::Range(request)) }
}

pub(crate) fn put(key: &bytes::Bytes, value: &bytes::Bytes) -> RequestOp {
    let request = PutRequest { key: key.clone(), value: value.clone() };
    RequestOp { request: Some(Request::Put(request)) }
}

/// True of a key that is not there.
pub(crate) fn is_absent(key: &bytes::Bytes) -> Compare {
    let with = Some(CompareWith::CreateRevision(0));
    Compare { target: TARGET_CREATE, key: key.clone(), with }
}

/// True of a key that is there and has this value.
pub(crate) fn has_value(key: &bytes::Bytes, value: &bytes::Bytes) -> Compare {
    let with = Some(CompareWith::Value(value.clone()));
    Compare { target: TARGET_VALUE, key: key.clone(), with }
}
