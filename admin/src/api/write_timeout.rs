//! A timeout for responses that the client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail with a timeout when the peer accepts fewer than a number of bytes
/// within a time.
pub struct WriteTimeout<S> {
    stream: S,
    time: Duration,
    bytes: usize,
    stall: Option<Stall>,
}

/// A write that blocked.
struct Stall {
    end: Pin<Box<Sleep>>,
    /// Bytes written since.
    written: usize,
}

impl<S> WriteTimeout<S> {
    /// A stream whose peer must accept `bytes` in each `time`.
    pub fn new(stream: S, time: Duration, bytes: usize) -> Self {
        Self {
            stream,
            time,
            bytes,
            stall: None,
        }
    }

    /// Starts the timer, or checks it.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let time = self.time;
        let stall = self.stall.get_or_insert_with(|| Stall {
            end: Box::pin(sleep(time)),
            written: 0,
        });
        while stall.end.as_mut().poll(context).is_ready() {
            if stall.written < self.bytes {
                let error = io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client does not read its answer",
                );
                return Poll::Ready(Err(error));
            }
            stall.written = 0;
            stall.end.as_mut().reset(Instant::now() + time);
        }
        Poll::Pending
    }

    fn wrote(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match (written, &mut self.stall) {
            (Poll::Pending, _) => self.wait(context),
            (Poll::Ready(Ok(bytes)), Some(stall)) => {
                stall.written += bytes;
                Poll::Ready(Ok(bytes))
            }
            (ready, _) => ready,
        }
    }

    /// The result of a write; a write of everything stops the timer.
    fn done(
        &mut self,
        flushed: Poll<io::Result<()>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if flushed.is_pending() {
            return self.wait(context);
        }
        self.stall = None;
        flushed
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.wrote(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.done(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.done(closed, context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::runtime;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A peer that accepts one byte each second.
    struct Trickle(Pin<Box<Sleep>>);

    impl AsyncWrite for Trickle {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            _bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.0.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.0.as_mut().reset(Instant::now() + SECOND);
            Poll::Ready(Ok(1))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// How many of a hundred bytes are accepted if this many in ten seconds are progress; the clock
    /// is the runtime's, which does not wait.
    fn taken(progress: usize, flush: bool) -> usize {
        let mut runtime = runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let trickle = Trickle(Box::pin(sleep(SECOND)));
            let mut stream = WriteTimeout::new(trickle, SECOND * 10 + SECOND / 2, progress);
            for taken in 0..100 {
                let mut stream = Pin::new(&mut stream);
                let written = poll_fn(|context| stream.as_mut().poll_write(context, b"x"));
                if let Err(error) = written.await {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                    return taken;
                }
                if flush {
                    poll_fn(|context| stream.as_mut().poll_flush(context))
                        .await
                        .unwrap();
                }
            }
            100
        })
    }

    #[test]
    fn bytes_that_trickle_are_no_progress() {
        assert_eq!(taken(12, false), 10);
    }

    #[test]
    fn an_answer_that_goes_on_may_take_long() {
        assert_eq!(taken(10, false), 100);
    }

    #[test]
    fn what_is_all_written_waits_for_nobody() {
        assert_eq!(taken(12, true), 100);
    }
}
