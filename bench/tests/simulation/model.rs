//! What must be in the files and directories, as far as the replies tell.
//!
//! Every call has a moment at which it began and one at which its reply came. A WRITE may be seen
//! from when it began; once it is acknowledged it must be seen, until a later one may have come
//! over it. A WRITE that came to no reply may be seen or not, in any part, for ever.

use std::sync::LazyLock;

/// Logical time.
pub type Moment = u64;

/// Bytes of noise, of which every WRITE has a window of its own.
const NOISE: usize = 1 << 17;

static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    let once: Vec<u8> = (0..NOISE).map(|_| next()).collect();
    once.repeat(2)
});

static ZEROS: [u8; NOISE] = [0; NOISE];

/// The bytes that WRITE `id` puts at `offset`; zero is the empty file.
pub fn pattern(id: u64, offset: usize, length: usize) -> &'static [u8] {
    if id == 0 {
        return &ZEROS[..length];
    }
    let start = (id as usize * 8191 + offset) % NOISE;
    &TABLE[start..start + length]
}

#[derive(Debug)]
struct Write {
    id: u64,
    start: usize,
    end: usize,
    began: Moment,
    ended: Option<Moment>,
}

/// What a READ brought.
pub struct Seen<'a> {
    pub offset: usize,
    pub asked: usize,
    pub eof: bool,
    pub data: &'a [u8],
    pub began: Moment,
}

/// The content of one file.
#[derive(Debug)]
pub struct File {
    writes: Vec<Write>,
}

impl File {
    pub fn new() -> Self {
        let empty = Write {
            id: 0,
            start: 0,
            end: usize::MAX,
            began: 0,
            ended: Some(0),
        };
        Self {
            writes: vec![empty],
        }
    }

    pub fn begin_write(&mut self, id: u64, offset: usize, length: usize, began: Moment) {
        self.writes.push(Write {
            id,
            start: offset,
            end: offset + length,
            began,
            ended: None,
        });
    }

    /// From now on it counts, if nothing comes over it.
    pub fn end_write(&mut self, id: u64, now: Moment) {
        if let Some(write) = self.writes.iter_mut().find(|write| write.id == id) {
            write.ended = Some(now);
        }
    }

    /// Smallest and largest size that the file can have had since `began`.
    pub fn sizes(&self, began: Moment) -> (usize, usize) {
        let real = || self.writes.iter().filter(|write| write.id != 0);
        let ended = |write: &&Write| write.ended.is_some_and(|ended| ended < began);
        let least = real().filter(ended).map(|write| write.end).max();
        let most = real().map(|write| write.end).max();
        (least.unwrap_or(0), most.unwrap_or(0))
    }

    /// Checks a READ whose reply is here now.
    pub fn check(&self, seen: &Seen<'_>) -> Result<(), String> {
        let Seen {
            offset,
            asked,
            eof,
            data,
            began,
        } = *seen;
        let (least, most) = self.sizes(began);
        let end = offset + data.len();
        if data.len() > asked || (!data.is_empty() && end > most) {
            return Err(format!(
                "{} bytes at {offset}, size at most {most}",
                data.len()
            ));
        }
        if (eof && end < least) || (data.is_empty() && asked > 0 && !eof) {
            return Err(format!(
                "READ of {asked} at {offset} ended at {end} (eof {eof}), size at least {least}"
            ));
        }
        let covers = |write: &&Write| write.start < end && write.end > offset;
        let near: Vec<&Write> = self.writes.iter().filter(covers).collect();
        let mut cuts = vec![offset, end];
        for write in &near {
            cuts.extend([write.start, write.end]);
        }
        cuts.retain(|cut| (offset..=end).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        for cut in cuts.windows(2) {
            check_part(&near, seen, cut[0], cut[1])?;
        }
        Ok(())
    }
}

/// Checks bytes that the same WRITEs cover.
fn check_part(near: &[&Write], seen: &Seen<'_>, start: usize, end: usize) -> Result<(), String> {
    let covering = || {
        near.iter()
            .filter(|write| write.start <= start && write.end >= end)
    };
    let hidden = |write: &Write| {
        covering().any(|later| {
            let over = write.ended.is_some_and(|ended| later.began > ended);
            over && later.ended.is_some_and(|ended| ended < seen.began)
        })
    };
    let visible: Vec<&&Write> = covering().filter(|write| !hidden(write)).collect();
    let data = &seen.data[start - seen.offset..end - seen.offset];
    let value = |write: &Write| pattern(write.id, start, end - start);
    if visible.iter().any(|write| value(write) == data) {
        return Ok(());
    }
    for (at, byte) in data.iter().enumerate() {
        if !visible.iter().any(|write| value(write)[at] == *byte) {
            let ids: Vec<u64> = visible.iter().map(|write| write.id).collect();
            let from = near
                .iter()
                .find(|write| value(write)[at..].starts_with(&data[at..]));
            return Err(format!(
                "byte {} of a READ at {}+{} is {byte:#x}, of none of the WRITEs {ids:?} that may be \
                 seen, but like that of {:?}",
                start + at,
                seen.offset,
                seen.data.len(),
                from.map(|write| write.id),
            ));
        }
    }
    Ok(())
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameModel {
    Absent,
    Present,
    /// A change came to no reply; a LOOKUP will tell.
    Unknown,
    /// A change came to no reply and may yet happen.
    Retired,
}

/// A name that one client uses, for one call at a time.
#[derive(Clone, Debug)]
pub struct Name {
    pub text: Vec<u8>,
    pub state: NameModel,
    pub busy: bool,
    /// When the last call that used it ended.
    pub settled: Moment,
}

/// Everything that is known.
#[derive(Debug)]
pub struct Model {
    pub files: Vec<File>,
    /// By client.
    pub names: Vec<Vec<Name>>,
    moment: Moment,
    writes: u64,
    /// Creations, removals and renames that succeeded, and those that may have.
    pub changes: [(u64, u64); 3],
}

impl Model {
    pub fn new(files: usize, clients: usize, names: usize) -> Self {
        let name = |client, number| Name {
            text: format!("client{client}-{number}").into_bytes(),
            state: NameModel::Absent,
            busy: false,
            settled: 0,
        };
        let of_client = |client| (0..names).map(|number| name(client, number)).collect();
        Self {
            files: (0..files).map(|_| File::new()).collect(),
            names: (0..clients).map(of_client).collect(),
            moment: 0,
            writes: 0,
            changes: Default::default(),
        }
    }

    /// A new moment.
    pub fn now(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// A number for a WRITE.
    pub fn write_id(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// Checks a list of names that was asked for at `began`.
    pub fn check_list(&self, listed: &[Vec<u8>], began: Moment) -> Result<(), String> {
        for name in self.names.iter().flatten() {
            let times = listed.iter().filter(|text| **text == name.text).count();
            let steady = !name.busy && name.settled < began;
            let right = match name.state {
                NameModel::Absent if steady => times == 0,
                NameModel::Present if steady => times == 1,
                _ => times <= 1,
            };
            if !right {
                return Err(format!("{name:?} was listed {times} times"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(offset: usize, data: &[u8], began: Moment) -> Seen<'_> {
        Seen {
            offset,
            asked: data.len(),
            eof: false,
            data,
            began,
        }
    }

    #[test]
    fn an_acknowledged_write_must_be_seen_and_an_open_one_may() {
        let mut file = File::new();
        file.begin_write(1, 0, 100, 1);
        assert!(file.check(&seen(0, &ZEROS[..50], 2)).is_ok());
        assert!(file.check(&seen(0, pattern(1, 0, 50), 2)).is_ok());
        file.end_write(1, 3);
        assert!(
            file.check(&seen(0, &ZEROS[..50], 2)).is_ok(),
            "it began before"
        );
        assert!(file.check(&seen(0, &ZEROS[..50], 4)).is_err());
        file.begin_write(2, 50, 100, 5);
        let mixed = [pattern(1, 0, 60), pattern(2, 60, 60)].concat();
        assert!(
            file.check(&seen(0, &mixed, 6)).is_ok(),
            "half of it is there"
        );
        file.end_write(2, 7);
        assert!(file.check(&seen(0, &mixed, 8)).is_err());
        assert!(file.check(&seen(0, &mixed[..50], 8)).is_ok());
        assert!(
            file.check(&seen(100, pattern(2, 100, 51), 8)).is_err(),
            "too long"
        );
        assert_eq!(file.sizes(8), (150, 150));
    }
}
