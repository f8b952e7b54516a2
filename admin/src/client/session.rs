//! Several requests on one connection.

use tokio::runtime::Runtime;

use super::exchange::{Sender, look_up};
use super::requester::runtime;
use super::{Answer, Client, ClientError, Method, Order};

/// Queries a server repeatedly, on one connection while it lasts.
pub struct Session {
    client: Client,
    runtime: Runtime,
    sender: Option<Sender>,
}

impl Session {
    /// Connects with the first query.
    ///
    /// # Errors
    ///
    /// The runtime cannot be created.
    pub fn new(client: Client) -> Result<Self, ClientError> {
        Ok(Self {
            client,
            runtime: runtime()?,
            sender: None,
        })
    }

    /// Queries a path, such as `/api/v1/version`. A connection that the server has closed in the
    /// meantime is replaced by a new one.
    ///
    /// # Errors
    ///
    /// There is no answer. An error response is an [`Answer`].
    pub fn get(&mut self, path: &str) -> Result<Answer, ClientError> {
        let order = Order::new(Method::Get, path);
        if let Some(sender) = self.sender.take() {
            match self.on(sender, &order) {
                Err(ClientError::Protocol { .. } | ClientError::Tls { .. }) => {}
                done => return done,
            }
        }
        let addresses = look_up(&self.client.address)?;
        let connect = self.client.connect(&addresses);
        let connect = self.client.in_time(self.client.timeout, connect);
        let sender = self.runtime.block_on(connect)?;
        self.on(sender, &order)
    }

    /// Sends on a connection, and keeps it if it can be reused.
    fn on(&mut self, mut sender: Sender, order: &Order) -> Result<Answer, ClientError> {
        let client = &self.client;
        let answer = self
            .runtime
            .block_on(client.in_time(client.timeout, async {
                let response = client.exchange(&mut sender, order, true, false).await?;
                if !client.may_help(order, &response) {
                    return client.whole(response).await;
                }
                client.whole(response).await?;
                let response = client.exchange(&mut sender, order, true, true).await?;
                client.whole(response).await
            }))?;
        self.sender = Some(sender);
        Ok(answer)
    }
}
