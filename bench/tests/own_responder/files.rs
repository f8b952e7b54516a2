//! Files of the export, by calls of NFS.

use millrace_bench::requester::Call;
use millrace_mempool::Slice;
use millrace_wire::nfs3::{
    CreateArguments, CreateHow, CreateResults, FileHandle, NameInDirectory, Procedure,
    ReadArguments, ReadResults, SetAttributes, Stability, WriteArguments, WriteResults,
};
use millrace_wire::xdr::Bulk;

use crate::world::World;

impl World {
    /// A new file in the root.
    pub fn create(&mut self, name: &[u8]) -> FileHandle {
        let entry = NameInDirectory {
            directory: self.root,
            name,
        };
        let how = CreateHow::Guarded(SetAttributes::default());
        let arguments = CreateArguments { entry, how };
        let call = Call::nfs3(1, Procedure::Create, arguments, 0);
        let created = self.call(&call, |reply| {
            let results = reply.results::<CreateResults>().expect("results");
            results.expect("created").object
        });
        created.expect("a reply").expect("a handle")
    }

    /// Writes all of `data` to the beginning of a file.
    pub fn write(&mut self, file: FileHandle, data: &[Slice]) {
        let count = data.iter().map(Slice::len).sum::<usize>() as u32;
        let arguments = WriteArguments {
            file,
            offset: 0,
            count,
            stable: Stability::FileSync,
            data: Bulk::apart(count),
        };
        let call = Call::nfs3(1, Procedure::Write, arguments, 0);
        let written = self.call(&call.with_data(data), |reply| {
            let results = reply.results::<WriteResults>().expect("results");
            results.expect("written").count
        });
        assert_eq!(written, Ok(count));
    }

    /// What a READ of the first `count` bytes gives, and whether it came apart from the reply.
    pub fn read(&mut self, file: FileHandle, count: usize) -> (Vec<u8>, bool) {
        let room = self.memory(count);
        room.fill_zero(0..count);
        let arguments = ReadArguments {
            file,
            offset: 0,
            count: count as u32,
        };
        let call = Call::nfs3(1, Procedure::Read, arguments, 0);
        let read = self.call(&call.with_sinks(&[std::slice::from_ref(&room)]), |reply| {
            let results = reply.results::<ReadResults<'_>>().expect("results");
            let results = results.expect("read");
            let inline = results.data.as_inline().map(<[u8]>::to_vec);
            (inline, results.count as usize)
        });
        match read.expect("a reply") {
            (Some(inline), _) => (inline, false),
            (None, count) => {
                let mut bytes = vec![0; count];
                room.copy_to(0, &mut bytes);
                (bytes, true)
            }
        }
    }
}
