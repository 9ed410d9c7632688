//! The older archives: a tar of the files of a stream's store.
//!
//! ```text
//! meta.inf, meta.sum             the stream's configuration, and its checksum
//! msgs/N.blk                     message blocks, uncompressed and decrypted
//! msgs/index.db                  passed over: it can be made from the blocks
//! obs/NAME/meta.inf, meta.sum    a consumer's configuration
//! obs/NAME/o.dat                 its state
//! ```

use crate::block::{BlockReader, Record};
use crate::error::ArchiveError;
use crate::hash::Sums;
use crate::{
    BLOCK_FILE_BYTES_MAX, CONSUMER_BYTES_MAX, CONSUMERS_MAX, Item, check_name, fill, json, odat,
    read_into,
};
use nuthatch_protocol::js::{ConsumerConfig, ConsumerSnapshot, StreamConfig};
use std::io::{self, Read};

/// Bytes of a header, and what contents are padded to.
const TAR_BLOCK_BYTES: usize = 512;
/// Bytes of an extended header, and of files that hold a configuration or a checksum.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// A file of the archive, without its contents.
struct FileHeader {
    name: String,
    size: u64,
}

struct Tar<R> {
    input: R,
    offset: u64,
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(text(field)).ok()?.trim();
    u64::from_str_radix(digits, 8).ok()
}

impl<R: Read> Tar<R> {
    fn damaged(&self, what: impl Into<String>) -> ArchiveError {
        ArchiveError::damaged(format!("tar, header at byte {}", self.offset), what)
    }

    /// The next file; its contents must be read next. `None` at the end.
    fn next(&mut self) -> Result<Option<FileHeader>, ArchiveError> {
        let (mut name, mut size) = (None, None);
        loop {
            let mut block = [0; TAR_BLOCK_BYTES];
            if fill(&mut self.input, &mut block)? < block.len() {
                return Err(self.damaged("the archive ends before its end mark"));
            }
            if block.iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            let own_size = self.check(&block)?;
            self.offset += TAR_BLOCK_BYTES as u64;
            match block[156] {
                b'x' => {
                    (name, size) = self.extended(own_size)?;
                }
                b'0' | 0 => {
                    let name = name.unwrap_or_else(|| plain_name(&block));
                    return Ok(Some(FileHeader { name, size: size.unwrap_or(own_size) }));
                }
                kind => return Err(self.damaged(format!("entries of type {kind} do not belong"))),
            }
        }
    }

    /// Checks a header; returns the size in it.
    fn check(&self, block: &[u8; TAR_BLOCK_BYTES]) -> Result<u64, ArchiveError> {
        let is_sum = 148..156;
        let sum = block.iter().enumerate().fold(0_u64, |sum, (at, &byte)| {
            sum + u64::from(if is_sum.contains(&at) { b' ' } else { byte })
        });
        if octal(&block[is_sum]) != Some(sum) {
            return Err(self.damaged("the checksum is wrong"));
        }
        octal(&block[124..136]).ok_or_else(|| self.damaged("the size is no number"))
    }

    /// An extended header: name and size that did not fit.
    fn extended(&mut self, size: u64) -> Result<(Option<String>, Option<u64>), ArchiveError> {
        let bytes = self.contents("an extended header", size, SMALL_FILE_BYTES_MAX)?;
        let (mut name, mut real_size) = (None, None);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // `length key=value\n`, where the length counts everything.
            let record = extended_record(rest).ok_or_else(|| self.damaged("a bad record"))?;
            rest = &rest[record.len..];
            match record.key {
                b"path" => name = Some(String::from_utf8_lossy(record.value).into_owned()),
                b"size" => {
                    real_size = std::str::from_utf8(record.value).ok().and_then(|s| s.parse().ok())
                }
                _ => {}
            }
        }
        Ok((name, real_size))
    }

    /// Contents of a small file, with what they are padded with passed over.
    fn contents(&mut self, name: &str, size: u64, max: u64) -> Result<Vec<u8>, ArchiveError> {
        ArchiveError::check_size(name, size, max)?;
        let mut bytes = Vec::new();
        read_into(&mut self.input, size, &mut bytes, &|| name.to_owned())?;
        self.skip_padding(size)?;
        Ok(bytes)
    }

    fn skip(&mut self, size: u64) -> Result<(), ArchiveError> {
        if io::copy(&mut self.input.by_ref().take(size), &mut io::sink())? < size {
            return Err(self.damaged("the archive ends before its end mark"));
        }
        self.skip_padding(size)
    }

    fn skip_padding(&mut self, size: u64) -> Result<(), ArchiveError> {
        let padding = size.next_multiple_of(TAR_BLOCK_BYTES as u64) - size;
        self.offset += size + padding;
        let mut unused = [0; TAR_BLOCK_BYTES];
        if fill(&mut self.input, &mut unused[..padding as usize])? < padding as usize {
            return Err(self.damaged("the archive ends before its end mark"));
        }
        Ok(())
    }
}

fn plain_name(block: &[u8; TAR_BLOCK_BYTES]) -> String {
    let name = String::from_utf8_lossy(text(&block[..100])).into_owned();
    let prefix = String::from_utf8_lossy(text(&block[345..500]));
    if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
}

struct ExtendedRecord<'a> {
    len: usize,
    key: &'a [u8],
    value: &'a [u8],
}

fn extended_record(rest: &[u8]) -> Option<ExtendedRecord<'_>> {
    let space = rest.iter().position(|&byte| byte == b' ')?;
    let len: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    let record = rest.get(space + 1..len)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some(ExtendedRecord { len, key: &record[..equals], value: &record[equals + 1..] })
}

/// A consumer's files as far as they have come.
#[derive(Default)]
struct ConsumerFiles {
    name: String,
    meta: Option<Vec<u8>>,
    is_summed: bool,
    state: Option<Vec<u8>>,
}

/// State checked and put together over several files.
struct Reading<'v, E> {
    stream: &'v str,
    visit: &'v mut dyn FnMut(Item<'_>) -> Result<(), E>,
    meta: Option<Vec<u8>>,
    is_summed: bool,
    consumer: ConsumerFiles,
    consumers: u64,
    /// The last message or gap.
    last: u64,
}

/// Reads a tar of a stream's files.
pub(crate) fn read<R, E>(
    input: R,
    stream: &str,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), E>,
) -> Result<(), E>
where
    R: Read,
    E: From<ArchiveError>,
{
    let mut tar = Tar { input: io::BufReader::new(input), offset: 0 };
    let mut reading = Reading {
        stream,
        visit,
        meta: None,
        is_summed: false,
        consumer: ConsumerFiles::default(),
        consumers: 0,
        last: 0,
    };
    while let Some(file) = tar.next()? {
        reading.take(&mut tar, &file)?;
    }
    reading.end_consumer()?;
    if !reading.is_summed {
        return Err(ArchiveError::damaged("meta.inf", "it, or its checksum, is not there").into());
    }
    Ok(())
}

impl<E: From<ArchiveError>> Reading<'_, E> {
    fn take<R: Read>(&mut self, tar: &mut Tar<R>, file: &FileHeader) -> Result<(), E> {
        let (name, size) = (file.name.as_str(), file.size);
        let parts: Vec<&str> = name.split('/').collect();
        match parts[..] {
            ["meta.inf"] => {
                self.meta = Some(tar.contents(name, size, SMALL_FILE_BYTES_MAX)?);
            }
            ["meta.sum"] => {
                let sum = tar.contents(name, size, SMALL_FILE_BYTES_MAX)?;
                self.check_stream(&sum)?;
            }
            ["msgs", file] if file.ends_with(".blk") => self.take_block(tar, file, size)?,
            ["msgs", _] => tar.skip(size)?,
            ["obs", consumer, file] => self.take_consumer_file(tar, consumer, file, name, size)?,
            ["errors.txt"] => {
                let text = tar.contents(name, size, SMALL_FILE_BYTES_MAX)?;
                let text = String::from_utf8_lossy(&text).into_owned();
                let text = format!("the server that made the archive failed: {text}");
                return Err(ArchiveError::Unsuitable(text).into());
            }
            _ => return Err(ArchiveError::damaged(name, "it does not belong here").into()),
        }
        Ok(())
    }

    fn check_stream(&mut self, sum: &[u8]) -> Result<(), ArchiveError> {
        let Some(meta) = self.meta.take() else {
            return Err(ArchiveError::damaged("meta.sum", "it comes before meta.inf"));
        };
        let config: StreamConfig = json::parse(&meta, "meta.inf")?;
        if config.name != self.stream {
            let text = format!("the archive is of stream {:?}", config.name);
            return Err(ArchiveError::Unsuitable(text));
        }
        if !Sums::new(self.stream).matches_hex(&meta, sum) {
            return Err(ArchiveError::damaged("meta.inf", "the checksum is wrong"));
        }
        self.is_summed = true;
        Ok(())
    }

    fn take_block<R: Read>(&mut self, tar: &mut Tar<R>, file: &str, size: u64) -> Result<(), E> {
        let index = file.strip_suffix(".blk").and_then(|number| number.parse().ok());
        let name = format!("msgs/{file}");
        let Some(index) = index else {
            return Err(ArchiveError::damaged(name, "its name holds no number").into());
        };
        ArchiveError::check_size(&name, size, BLOCK_FILE_BYTES_MAX)?;
        let input = tar.input.by_ref().take(size);
        let mut block = BlockReader::new(input, size, self.stream, index, name.clone())?;
        while let Some(record) = block.next()? {
            if let Some(item) = item_of(record, &mut self.last) {
                (self.visit)(item)?;
            }
        }
        drop(block);
        tar.skip_padding(size)?;
        Ok(())
    }

    fn take_consumer_file<R: Read>(
        &mut self,
        tar: &mut Tar<R>,
        consumer: &str,
        file: &str,
        name: &str,
        size: u64,
    ) -> Result<(), E> {
        if self.consumer.name != consumer {
            self.end_consumer()?;
            check_name(consumer, name)?;
            consumer.clone_into(&mut self.consumer.name);
        }
        match file {
            "meta.inf" => {
                self.consumer.meta = Some(tar.contents(name, size, SMALL_FILE_BYTES_MAX)?);
            }
            "meta.sum" => {
                let sum = tar.contents(name, size, SMALL_FILE_BYTES_MAX)?;
                let sums = Sums::new(&format!("{}/{consumer}", self.stream));
                let meta = self.consumer.meta.as_deref().unwrap_or_default();
                if !sums.matches_hex(meta, &sum) {
                    let place = format!("obs/{consumer}/meta.inf");
                    return Err(ArchiveError::damaged(place, "the checksum is wrong").into());
                }
                self.consumer.is_summed = true;
            }
            "o.dat" => {
                self.consumer.state = Some(tar.contents(name, size, CONSUMER_BYTES_MAX)?);
            }
            _ => return Err(ArchiveError::damaged(name, "it does not belong here").into()),
        }
        Ok(())
    }

    /// Every file of a consumer has come.
    fn end_consumer(&mut self) -> Result<(), E> {
        let files = std::mem::take(&mut self.consumer);
        if files.name.is_empty() {
            return Ok(());
        }
        self.consumers += 1;
        ArchiveError::check_size("a list of consumers", self.consumers, CONSUMERS_MAX)?;
        let place = format!("obs/{}", files.name);
        let Some(meta) = files.meta.filter(|_| files.is_summed) else {
            return Err(
                ArchiveError::damaged(place, "meta.inf or its checksum is not there").into()
            );
        };
        let consumer = consumer_of(&files.name, &meta, files.state.as_deref(), &place)?;
        (self.visit)(Item::Consumer(Box::new(consumer)))
    }
}

/// A consumer as its files tell it.
pub(crate) fn consumer_of(
    name: &str,
    meta: &[u8],
    state: Option<&[u8]>,
    place: &str,
) -> Result<ConsumerSnapshot, ArchiveError> {
    let mut config: ConsumerConfig = json::parse(meta, &format!("{place}/meta.inf"))?;
    name.clone_into(&mut config.name);
    let state = state
        .filter(|bytes| !bytes.is_empty())
        .map(odat::decode)
        .transpose()
        .map_err(|what| ArchiveError::damaged(format!("{place}/o.dat"), what))?;
    Ok(ConsumerSnapshot { config, state })
}

/// Item for a record of a block, where `last` is how far the blocks have come.
fn item_of<'r>(record: Record<'r>, last: &mut u64) -> Option<Item<'r>> {
    match record {
        // Written again by a compaction that did not end: the first one counts.
        Record::Message(message) if message.seq <= *last => None,
        Record::Message(message) => {
            *last = message.seq;
            Some(Item::Message(message))
        }
        Record::Removed { seq: 0, .. } => None,
        Record::Removed { seq, .. } => {
            let first = if seq > *last { *last + 1 } else { seq };
            *last = seq.max(*last);
            Some(Item::Removed { first, last: seq })
        }
    }
}

#[cfg(test)]
mod tests;
