//! What a load needs before it begins: files, connections, and calls.

use std::time::Instant;

use anyhow::{Context, Result};
use millrace_mempool::Class;
use millrace_wire::nfs3::{CreateHow, NameInDirectory, SetAttributes};

use super::{CONNECTING, Engine};
use crate::load::calls::{LoadCall, LoadSlot, Templates};
use crate::load::compounds::{self, LaneSession};
use crate::load::file_tree::FileTree;
use crate::load::lane::{LaneFile, Lanes, LoadLane, file_name};
use crate::load::pattern::{Pattern, PatternReader};
use crate::load::workload::Workload;
use crate::requester::session::CopyOptions;
use crate::requester::{Connection, RequesterState, Session, Settings};

impl Engine {
    pub(super) fn prepare_files(&mut self, lanes: Lanes) -> Result<()> {
        let mut session = self.session()?;
        self.transfer = Some(session.transfer(self.root)?);
        if lanes.files.files > 0 {
            let tree = FileTree::make(&mut session, self.root, file_name(), lanes.files)?;
            self.tree = Some(tree);
        }
        let mut files = Vec::with_capacity(lanes.all());
        for number in 0..lanes.all() {
            if let Err(error) = self.prepare_file(&mut session, lanes, number, &mut files) {
                // The failure is what there is to tell.
                for mut file in files {
                    let _ = file.remove(&mut session, self.root);
                }
                if let Some(tree) = &self.tree {
                    let _ = tree.remove(&mut session, self.root);
                }
                return Err(error);
            }
        }
        session.close();
        // Only now: a server closes connections that send nothing for seconds, and the files may
        // take longer.
        let address = self.client.target()?;
        for (number, file) in files.into_iter().enumerate() {
            let settings = Settings {
                context: file.context.clone(),
                ..self.client.settings(lanes.depth_of(number))
            };
            let (provider, now) = (self.provider.as_mut(), Instant::now());
            let connection = Connection::connect(provider, &self.pool, address, settings, now)?;
            let index = connection.queue_pair().index as usize;
            let known = self.by_queue_pair.len().max(index + 1);
            self.by_queue_pair.resize(known, usize::MAX);
            self.by_queue_pair[index] = number;
            self.lanes.push(LoadLane {
                connection,
                file,
                places: Vec::new(),
                templates: None,
                in_tree: Vec::new(),
                next: 0,
                random: 0x2545_f491_4f6c_dd1d ^ (number as u64 + 1),
                is_due: false,
            });
            if (number + 1).is_multiple_of(CONNECTING) {
                self.wait(|state| state != &RequesterState::Connecting)?;
            }
        }
        self.wait(|state| state != &RequesterState::Connecting)?;
        std::thread::sleep(self.client.options.settle());
        self.settled = true;
        self.wait(|state| state == &RequesterState::Ready)
    }

    /// Makes the file of a connection, and opens it in version 4.
    fn prepare_file(
        &self,
        session: &mut Session,
        lanes: Lanes,
        number: usize,
        files: &mut Vec<LaneFile>,
    ) -> Result<()> {
        let name = file_name();
        let attributes = SetAttributes {
            mode: Some(0o600),
            size: Some(if lanes.sparse {
                self.file_size as u64
            } else {
                0
            }),
            ..SetAttributes::default()
        };
        session.create(self.root, name.as_bytes(), CreateHow::Unchecked(attributes))?;
        let handle = session.lookup(self.root, name.as_bytes())?.object;
        let pattern = Pattern::new(number as u64);
        let file = files.push_mut(LaneFile {
            name,
            handle,
            pattern,
            session: None,
            context: None,
        });
        let mut source = PatternReader {
            pattern,
            at: 0,
            end: self.file_size as u64,
        };
        if !lanes.sparse {
            session
                .copy_in(handle, &mut source, CopyOptions::default())
                .context("cannot write the file to work on")?;
        }
        if let Some(minor) = lanes.nfs.minor_version() {
            let path = (self.client.place.export.as_str(), file.name.as_str());
            let opened = LaneSession::open(session, minor, lanes.depth_of(number), path)?;
            let opened = file.session.insert(opened);
            opened.open_again(session, file.name.as_bytes(), lanes.opens)?;
        }
        file.context = self.client.create_context(session)?;
        Ok(())
    }

    pub(super) fn prepare_places(&mut self, workload: &Workload) -> Result<()> {
        let now = Instant::now();
        for lane in &mut self.lanes[..self.loaded] {
            lane.places.clear();
            let name = NameInDirectory {
                directory: self.root,
                name: lane.file.name.as_bytes(),
            };
            lane.templates = Some(match &lane.file.session {
                None => Templates::new(&lane.connection, lane.file.handle, name, workload)?,
                Some(session) => {
                    compounds::templates(&lane.connection, session, &lane.file.name, workload)?
                }
            });
            lane.in_tree = match (&self.tree, workload.operation.in_tree()) {
                (Some(tree), Some(call)) => tree.templates(&lane.connection, call)?,
                _ => Vec::new(),
            };
            lane.next = 0;
            for _ in 0..workload.depth {
                let class = Class::for_size(workload.size).context("--size is too large")?;
                let buffer = self.pool.try_acquire(class);
                let buffer = buffer.context("no memory for so many calls of that size")?;
                let memory = buffer.into_slice(0..workload.size);
                lane.file.pattern.fill_slice(0, &memory, &mut self.scratch);
                lane.places.push(LoadSlot {
                    memory,
                    begun: now,
                    offset: 0,
                    call: LoadCall::Getattr,
                    verify: workload.verify,
                    compounds: lane.file.session.is_some(),
                });
            }
        }
        Ok(())
    }
}
