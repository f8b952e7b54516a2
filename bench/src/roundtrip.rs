//! Copies files to the server and back, compared by SHA-256.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::HumanBytes;
use millrace_wire::nfs3::{CreateHow, FileHandle, SetAttributes};
use sha2::{Digest, Sha256};

use crate::client::{Client, pool, spoken};
use crate::requester::Session;
use crate::requester::session::CopyOptions;
use crate::table::Table;

const MIB: f64 = 1024.0 * 1024.0;

/// Copy files to the server over RDMA, read them back, and compare their SHA-256.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  Against a millraced on this host, with default ports:
    millrace-bench roundtrip *.iso
  Against another host, with the ports of its port mapper:
    millrace-bench roundtrip --target filer.example --rpcbind --export /scratch *.iso
  From another source address, in blocks of 64 KiB, without removing the copies:
    millrace-bench roundtrip --source 127.0.0.2 --block 64KiB --keep *.iso
  In version two; in classic mode; with limits and aligned data by CCP:
    millrace-bench roundtrip --version-two *.iso
    millrace-bench roundtrip --classic *.iso
    millrace-bench roundtrip --padding ccp *.iso
")]
pub struct Roundtrip {
    #[command(flatten)]
    client: Client,

    /// Bytes of one READ or WRITE, at most 1 MiB and the server's limit; by default the server's
    /// preferred size.
    #[arg(long, value_name = "BYTES", value_parser = crate::units::size)]
    block: Option<usize>,

    /// Calls in flight.
    #[arg(long, value_name = "CALLS", default_value_t = 16)]
    depth: usize,

    /// Leave the files on the server.
    #[arg(long)]
    keep: bool,

    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,

    /// The files to copy.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Result of one file.
#[derive(Clone, Debug, serde::Serialize)]
pub struct FileReport {
    /// Its name on the server.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    /// MiB per second to the server, including the commit.
    pub in_mib_s: f64,
    /// MiB per second from the server.
    pub out_mib_s: f64,
    /// SHA-256 of the data sent, in hex.
    pub sha256: String,
    /// Whether the data read back is the same.
    pub ok: bool,
}

/// Forwards bytes and hashes them.
struct Hashed<T> {
    inner: T,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
        }
    }

    fn hex(self) -> String {
        let mut hex = String::new();
        for byte in self.hash.finalize() {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }
}

impl Roundtrip {
    /// Runs, prints, and returns whether all files came back unchanged.
    ///
    /// # Errors
    /// If the server or a file cannot be reached.
    pub fn run(&self) -> Result<bool> {
        if self
            .block
            .is_some_and(|block| !(1..=1 << 20).contains(&block))
        {
            bail!("--block takes 1 byte to 1 MiB");
        }
        let root = self.client.root()?;
        let pool = pool((self.depth + 4) * (1 << 20) + (64 << 20))?;
        let mut settings = self.client.settings(self.depth.max(16));
        settings.keep_calls = true;
        let mut session = self.client.session(&pool, settings)?;
        let version = spoken(session.connection());
        let mut reports = Vec::new();
        for path in &self.files {
            let report = self
                .copy(&mut session, root, path)
                .with_context(|| format!("{}", path.display()))?;
            reports.push(report);
        }
        session.close();
        let ok = reports.iter().all(|report| report.ok);
        if self.json {
            let report = serde_json::json!({
                "ok": ok,
                "rpcrdma_version": version,
                "files": reports,
            });
            println!("{report}");
        } else {
            println!("RPC-over-RDMA version {version}");
            println!("{}", table(&reports));
        }
        Ok(ok)
    }

    fn copy(&self, session: &mut Session, root: FileHandle, path: &Path) -> Result<FileReport> {
        let name = path.file_name().context("has no file name")?;
        let name = name.as_encoded_bytes();
        let options = CopyOptions {
            block: self.block,
            depth: self.depth,
        };
        let attributes = SetAttributes {
            mode: Some(0o644),
            size: Some(0),
            ..SetAttributes::default()
        };
        session.create(root, name, CreateHow::Unchecked(attributes))?;
        let file = session.lookup(root, name)?.object;

        let mut source = Hashed::new(File::open(path)?);
        let start = Instant::now();
        let size = session.copy_in(file, &mut source, options)?;
        let inward = start.elapsed().as_secs_f64();

        let mut target = Hashed::new(io::sink());
        let start = Instant::now();
        let back = session.copy_out(file, &mut target, options)?;
        let outward = start.elapsed().as_secs_f64();
        if !self.keep {
            session.remove(root, name)?;
        }
        let sha256 = source.hex();
        let ok = back == size && target.hex() == sha256;
        Ok(FileReport {
            name: String::from_utf8_lossy(name).into_owned(),
            size,
            in_mib_s: size as f64 / MIB / inward.max(1e-9),
            out_mib_s: size as f64 / MIB / outward.max(1e-9),
            sha256,
            ok,
        })
    }
}

fn table(reports: &[FileReport]) -> Table {
    let mut table = Table::new(&["name", "size", "in MiB/s", "out MiB/s", "SHA-256", "ok"]);
    for report in reports {
        table.row(&[
            report.name.clone(),
            HumanBytes(report.size).to_string(),
            format!("{:.1}", report.in_mib_s),
            format!("{:.1}", report.out_mib_s),
            report.sha256.chars().take(16).collect(),
            if report.ok { "ok" } else { "DIFFERENT" }.to_owned(),
        ]);
    }
    table
}
