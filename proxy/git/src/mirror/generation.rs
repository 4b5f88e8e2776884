//! The generation file: the only truth about what one snapshot consists of.
//!
//! ```text
//! tidegate-generation 1
//! number 7
//! hash sha1
//! head attached <oid> refs/heads/main        (or: unborn <ref> | detached <oid>)
//! ref <oid> <peeled or -> <symref or -> refs/heads/main
//! pack <checksum> <bytes> <index checksum> <index bytes>
//! boundary <oid>
//! retained <oid> <until, unix seconds>
//! root <oid> <until, unix seconds>
//! end <sha-256 of everything before this line>
//! ```
//!
//! Ref names are raw bytes; they hold no space and no line end.

use std::{io::Write, str::FromStr};

use gix_hash::{Kind, ObjectId};
use sha2::{Digest, Sha256};

use super::Retained;
use crate::refs::{Builder, Head, Ref, RefName, RefTable};

const FIRST_LINE: &[u8] = b"tidegate-generation 1";
/// `end `, 64 digits, a line end.
const LAST_LINE: usize = 4 + 64 + 1;

/// A pack that a generation consists of, and what its files look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackFile {
    pub(super) checksum: ObjectId,
    pub(super) bytes: u64,
    pub(super) index_checksum: ObjectId,
    pub(super) index_bytes: u64,
}

/// What one generation file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) refs: RefTable,
    pub(super) packs: Vec<PackFile>,
    pub(super) boundary: Vec<ObjectId>,
    pub(super) retained: Vec<Retained>,
    pub(super) roots: Vec<Retained>,
}

/// Why a generation file can't be believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Damage {
    /// It is cut, or its bytes changed.
    #[error("its checksum is wrong")]
    Checksum,
    /// The bytes are as they were written, but make no sense to this version.
    #[error("line {0} cannot be read")]
    Line(usize),
}

impl Generation {
    /// The whole file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = FIRST_LINE.to_vec();
        out.push(b'\n');
        line(&mut out, &["number", &self.number.to_string()], b"");
        line(&mut out, &["hash", &self.refs.hash().to_string()], b"");
        match self.refs.head() {
            None => {}
            Some(Head::Attached { target, oid }) => line(&mut out, &["head", "attached", &hex(oid)], target),
            Some(Head::Unborn { target }) => line(&mut out, &["head", "unborn"], target),
            Some(Head::Detached { oid }) => line(&mut out, &["head", "detached", &hex(oid)], b""),
        }
        for entry in self.refs.refs() {
            let peeled = entry.peeled.as_ref().map_or_else(|| "-".to_owned(), hex);
            out.extend_from_slice(format!("ref {} {peeled} ", entry.oid.to_hex()).as_bytes());
            out.extend_from_slice(entry.symref.as_ref().map_or(b"-", RefName::as_bytes));
            out.push(b' ');
            out.extend_from_slice(&entry.name);
            out.push(b'\n');
        }
        for pack in &self.packs {
            let (bytes, index_bytes) = (pack.bytes.to_string(), pack.index_bytes.to_string());
            line(
                &mut out,
                &["pack", &hex(&pack.checksum), &bytes, &hex(&pack.index_checksum), &index_bytes],
                b"",
            );
        }
        for oid in &self.boundary {
            line(&mut out, &["boundary", &hex(oid)], b"");
        }
        for (word, list) in [("retained", &self.retained), ("root", &self.roots)] {
            for kept in list {
                line(&mut out, &[word, &hex(&kept.oid), &kept.until.to_string()], b"");
            }
        }
        let end = format!("end {}\n", hex::encode(Sha256::digest(&out)));
        out.extend_from_slice(end.as_bytes());
        out
    }

    /// Reads a whole file.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let cut = bytes.len().checked_sub(LAST_LINE).ok_or(Damage::Checksum)?;
        let (text, end) = bytes.split_at(cut);
        let digest = hex::encode(Sha256::digest(text));
        if end != format!("end {digest}\n").as_bytes() {
            return Err(Damage::Checksum);
        }
        let mut lines = text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n');
        if lines.next() != Some(FIRST_LINE) {
            return Err(Damage::Line(1));
        }
        let number =
            lines.next().and_then(|line| parse(line.strip_prefix(b"number ")?)).ok_or(Damage::Line(2))?;
        let hash: Kind =
            lines.next().and_then(|line| parse(line.strip_prefix(b"hash ")?)).ok_or(Damage::Line(3))?;
        let mut reading = Reading {
            hash,
            refs: Builder::new(hash),
            packs: Vec::new(),
            boundary: Vec::new(),
            retained: Vec::new(),
            roots: Vec::new(),
        };
        for (at, line) in lines.enumerate() {
            reading.line(line).ok_or(Damage::Line(at + 4))?;
        }
        let Reading { refs, packs, boundary, retained, roots, .. } = reading;
        let refs = refs.build().map_err(|_| Damage::Line(4))?;
        Ok(Self { number, refs, packs, boundary, retained, roots })
    }
}

/// A file being read, after its first three lines.
struct Reading {
    hash: Kind,
    refs: Builder,
    packs: Vec<PackFile>,
    boundary: Vec<ObjectId>,
    retained: Vec<Retained>,
    roots: Vec<Retained>,
}

impl Reading {
    fn line(&mut self, line: &[u8]) -> Option<()> {
        let words: Vec<&[u8]> = line.splitn(6, |byte| *byte == b' ').collect();
        match words.as_slice() {
            [b"head", b"attached", oid, target] => {
                self.refs.head(Head::Attached { target: name(target)?, oid: self.oid(oid)? });
            }
            [b"head", b"unborn", target] => self.refs.head(Head::Unborn { target: name(target)? }),
            [b"head", b"detached", oid] => self.refs.head(Head::Detached { oid: self.oid(oid)? }),
            [b"ref", oid, peeled, symref, full] => self.refs.push(Ref {
                name: name(full)?,
                oid: self.oid(oid)?,
                peeled: if *peeled == b"-" { None } else { Some(self.oid(peeled)?) },
                symref: if *symref == b"-" { None } else { Some(name(symref)?) },
            }),
            [b"pack", checksum, bytes, index_checksum, index_bytes] => self.packs.push(PackFile {
                checksum: self.oid(checksum)?,
                bytes: parse(bytes)?,
                index_checksum: self.oid(index_checksum)?,
                index_bytes: parse(index_bytes)?,
            }),
            [b"boundary", oid] => self.boundary.push(self.oid(oid)?),
            [b"retained", oid, until] => self.retained.push(self.kept(oid, until)?),
            [b"root", oid, until] => self.roots.push(self.kept(oid, until)?),
            _ => return None,
        }
        Some(())
    }

    fn oid(&self, hex: &[u8]) -> Option<ObjectId> {
        ObjectId::from_hex(hex).ok().filter(|oid| oid.kind() == self.hash)
    }

    fn kept(&self, oid: &[u8], until: &[u8]) -> Option<Retained> {
        Some(Retained { oid: self.oid(oid)?, until: parse(until)? })
    }
}

fn name(bytes: &[u8]) -> Option<RefName> {
    RefName::new(bytes).ok()
}

fn parse<T: FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

fn hex(oid: &ObjectId) -> String {
    oid.to_hex().to_string()
}

fn line(out: &mut Vec<u8>, words: &[&str], last: &[u8]) {
    let written = write!(out, "{}", words.join(" "));
    debug_assert!(written.is_ok(), "a Vec takes all bytes");
    if !last.is_empty() {
        out.push(b' ');
        out.extend_from_slice(last);
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn oid(n: u8) -> ObjectId {
        ObjectId::from_bytes_or_panic(&[n; 20])
    }

    fn sample(number: u64, names: &[Vec<u8>]) -> Generation {
        let mut refs = Builder::new(Kind::Sha1);
        refs.head(Head::Attached { target: RefName::new(b"refs/heads/main").unwrap(), oid: oid(9) });
        for (n, bytes) in (0..).zip(names) {
            refs.push(Ref {
                name: RefName::new(&[b"refs/heads/", bytes.as_slice()].concat()).unwrap(),
                oid: oid(n),
                peeled: (n % 2 == 0).then(|| oid(n + 1)),
                symref: (n % 3 == 0).then(|| RefName::new(b"refs/heads/\xff").unwrap()),
            });
        }
        Generation {
            number,
            refs: refs.build().unwrap(),
            packs: vec![PackFile { checksum: oid(1), bytes: 32, index_checksum: oid(2), index_bytes: 1_072 }],
            boundary: vec![oid(3), oid(4)],
            retained: vec![Retained { oid: oid(5), until: 1_800_000_000 }],
            roots: vec![Retained { oid: oid(6), until: u64::MAX }],
        }
    }

    #[test]
    fn every_shape_of_head_survives() {
        let target = RefName::new(b"refs/heads/gone").unwrap();
        for head in [None, Some(Head::Unborn { target }), Some(Head::Detached { oid: oid(1) })] {
            let mut generation = sample(1, &[]);
            let mut refs = Builder::new(Kind::Sha1);
            if let Some(head) = head {
                refs.head(head);
            }
            generation.refs = refs.build().unwrap();
            assert_eq!(Generation::decode(&generation.encode()), Ok(generation));
        }
    }

    #[test]
    fn a_cut_or_flipped_file_is_damaged_never_a_panic() {
        let whole = sample(7, &[b"main".to_vec(), b"\xfe".to_vec()]).encode();
        for end in 0..whole.len() {
            assert_eq!(Generation::decode(&whole[..end]), Err(Damage::Checksum), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x20;
            assert!(Generation::decode(&flipped).is_err(), "flipped at {at}");
        }
    }

    #[test]
    fn a_line_of_a_later_version_is_named() {
        let mut text = b"tidegate-generation 1\nnumber 1\nhash sha1\nsurprise\n".to_vec();
        let end = format!("end {}\n", hex::encode(Sha256::digest(&text)));
        text.extend_from_slice(end.as_bytes());
        assert_eq!(Generation::decode(&text), Err(Damage::Line(4)));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            number: u64,
            names in prop::collection::btree_set(prop::collection::vec(0x21_u8..=0xff, 1..40), 0..8),
        ) {
            let names: Vec<_> = names.into_iter().filter(|name| !name.contains(&b'^') && !name.contains(&0x7f)).collect();
            let generation = sample(number, &names);
            prop_assert_eq!(Generation::decode(&generation.encode()), Ok(generation));
        }
    }
}
