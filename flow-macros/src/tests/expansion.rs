use super::expand;

/// Formats an expansion, and checks that a second one is equal byte by byte.
fn show(name: &str, attr: &str, item: &str) -> String {
    let tokens = expand(name, attr, item);
    assert_eq!(
        tokens.to_string(),
        expand(name, attr, item).to_string(),
        "expanding twice gives the same"
    );
    assert_eq!(super::errors(tokens.clone()), [""; 0]);
    prettyplease::unparse(&syn::parse2(tokens).expect("an expansion is a list of items"))
}

macro_rules! snapshot {
    ($test:ident: $name:ident, $attr:expr, $item:expr) => {
        #[test]
        fn $test() {
            insta::assert_snapshot!(stringify!($test), show(stringify!($name), $attr, $item));
        }
    };
}

snapshot!(reply_step: step,
    r##"reply, tools, memory = "talk", id = "explore", alias("Browse"),
       flow_tools(Charge, tools::FindHotel<D>),
       sampling(seed = 18446744073709551615, extra("top-k" = 40, r#type = "a", stop = true, bias = -1.5)),
       next(Checkout(Choice), steps::Farewell, stay, end, hand_off, escalate)"##,
    r#"
    /// Finds rooms.
    ///
    /// With the guest.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    pub struct Explore { pub shown: Vec<RoomId> }
    "#
);

snapshot!(collect_step: step,
    "collect, input = Choice, next(Confirm, stay)",
    r##"
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Checkout {
        /// Full name.
        #[slot(verbatim, whole_message)]
        pub full_name: Option<String>,
        #[slot(range(1, 8), ask = "How many?")]
        guests: Option<u8>,
        #[slot(one_of("card", "cash"), optional)]
        #[serde(rename = "pay")]
        pub payment: std::option::Option<Payment>,
        #[slot(pattern("#(\\d+)"))]
        code: Option<u32>,
        room: RoomId,
    }
    "##
);

snapshot!(generic_step: step,
    "action, next(Report<D>(Row<D>), Other(u8))",
    "struct Load<D: Db, const N: usize, E> where D: Clone, E: Send, D: Into<E> { rows: [D; N], e: E }"
);

snapshot!(step_with_context: step,
    r#"decide, memory = "talk", context = last(6), next(end)"#,
    "pub struct Choose;"
);

snapshot!(flow: flow,
    r#"id = "hotel", version = 2, steps(Explore, steps::Checkout), state = Booking,
       model = "openai::gpt-5.1-mini",
       sampling(temperature = 1, top_p = 0.5, max_output_tokens = 300, reasoning_effort = "low"), tools"#,
    r#"
    /// Books a room.
    #[doc = include_str!("hotel.md")]
    #[derive(Clone)]
    pub struct Hotel { pub inventory: Arc<dyn Inventory> }
    "#
);

snapshot!(generic_flow: flow,
    "crate = crate::reexported::flow_core, steps(Explore<D>)",
    "struct Hotel<D: Db>(D) where D: Clone;"
);

snapshot!(step_tools: tools, "",
    r#"
    impl<D: Db> Explore<D> {
        const LIMIT: usize = 2;

        /// Searches.
        #[tool]
        async fn search(&mut self, cx: &mut StepCx<'_, Hotel<D>>, query: SearchQuery) -> ToolResult<Vec<Room>> {
            self.find(query).await
        }

        /// Counts.
        #[cfg(feature = "count")]
        #[cfg_attr(unix, cfg(test), inline)]
        #[tool(name = "count-rooms")]
        pub fn count(&self, /** Where. */ city: String, _own: Self) -> u8 { 1 }

        /// Tells the weather.
        #[tool(parallel)]
        async fn weather(&self, cx: &StepCx<'_, Hotel<D>>, city: String) -> ToolResult<Weather> {
            cx.flow.weather(city).await
        }

        #[tool(description = "Told by serde.", ask)]
        fn told(&self, #[serde(default)] id: u32, row: Row<D>) {}

        fn plain(&self) {}
    }
    "#
);

snapshot!(flow_tools: tools, "flow",
    r#"
    impl Hotel {
        /// Charges.
        #[tool]
        #[deprecated]
        pub async fn charge(&self, cx: &ToolCx, /** In cents. */ cents: u32, note: Option<String>) -> ToolResult<Receipt> {
            todo(cents, note)
        }

        /// Answers.
        #[tool]
        fn ping(&self) {}

        /// Transfers.
        #[tool(replay = never)]
        async fn transfer(&self) {}

        /// Looks.
        #[tool(replay = always)]
        async fn look(&self) -> u8 { 1 }
    }
    "#
);

snapshot!(confirm_step: step, "decide, confirm, next(Book, stay)", "struct Check;");
