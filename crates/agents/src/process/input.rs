//! What goes to a running program, by way of its guard.

use std::io::Write as _;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::guard::{ORDER_CLOSE, ORDER_END, ORDER_INPUT};

/// Bytes that may wait for the guard to take them. It takes everything at once, so this is
/// reached only when the guard is gone or stuck.
const WAITING_BYTES: usize = 64 << 20;

/// The standard input of a program under the guard.
///
/// Nothing here waits for the program: what it has not read yet is held for it, up to a bound, and
/// at the bound its input is closed.
#[derive(Debug)]
pub struct Input {
    orders: Sender<Order>,
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Order {
    Input(Vec<u8>),
    Close,
    End,
}

/// The program gets no more input: nobody takes what was written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its input is not read")]
pub struct NotRead;

impl Input {
    pub(super) fn new(pipe: Option<ChildStdin>, first: Vec<u8>) -> Input {
        let (orders, received) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&waiting);
        // Never joined: when the guard is gone the write fails and the thread ends.
        std::thread::spawn(move || {
            if let Some(pipe) = pipe {
                write_orders(pipe, &received, &written);
            }
        });
        let input = Input { orders, waiting };
        if !first.is_empty() {
            input.order(Order::Input(first));
        }
        input
    }

    /// Hands bytes to the program, in order, without waiting for it.
    pub fn send(&self, bytes: Vec<u8>) -> Result<(), NotRead> {
        let before = self.waiting.load(Ordering::SeqCst);
        if before.saturating_add(bytes.len()) > WAITING_BYTES {
            return Err(NotRead);
        }
        if self.order(Order::Input(bytes)) {
            Ok(())
        } else {
            Err(NotRead)
        }
    }

    /// Closes the program's standard input once it has read what was sent.
    pub fn close(&self) {
        self.order(Order::Close);
    }

    pub(super) fn end_tree(&self) {
        self.order(Order::End);
    }

    /// False when the thread is gone, and with it the guard.
    fn order(&self, order: Order) -> bool {
        let length = match &order {
            Order::Input(bytes) => bytes.len(),
            Order::Close | Order::End => 0,
        };
        self.waiting.fetch_add(length, Ordering::SeqCst);
        self.orders.send(order).is_ok()
    }
}

/// Writes orders until the other end is dropped, which is after the guard's end. The pipe is held
/// open until then: only our death, or the guard's, may close it.
fn write_orders(mut pipe: ChildStdin, orders: &Receiver<Order>, waiting: &AtomicUsize) {
    for order in orders {
        let written = match &order {
            Order::Input(bytes) => {
                let header = [&[ORDER_INPUT], &(bytes.len() as u64).to_le_bytes()[..]].concat();
                let written = pipe.write_all(&header).and_then(|()| pipe.write_all(bytes));
                waiting.fetch_sub(bytes.len(), Ordering::SeqCst);
                written
            }
            Order::Close => pipe.write_all(&[ORDER_CLOSE]),
            Order::End => pipe.write_all(&[ORDER_END]),
        };
        if written.is_err() {
            return;
        }
    }
}
