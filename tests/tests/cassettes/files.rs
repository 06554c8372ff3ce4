//! The file, and how strictly it is replayed.

use flow_core::model::cassette::{CASSETTE_FORMAT, CassetteError};

use super::*;

fn busy() -> ModelError {
    ModelError::Status {
        model: "test::model".into(),
        status: 429,
        message: "slow down".into(),
        retry_after: Some(Duration::from_millis(1500)),
    }
}

fn mismatch(error: &ModelError) -> (usize, &str) {
    match error {
        ModelError::Cassette(CassetteError::Mismatch { number, difference, .. }) => {
            (*number, difference)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cassette_is_a_file_to_be_read_by_people() {
    let file = File::new();
    let answer = ChatResponse::new(vec![Part::text("Hi.")]).usage(TokenUsage::new(5, 2));
    let script = ScriptedModel::new().chunks(["Hel", "lo"]).error(busy()).response(answer);
    let model = RecordingModel::new(script, &file.path);
    streamed(&model, &ask("one")).await.unwrap();
    model.complete(&ask("two")).await.unwrap_err();
    model.complete(&ask("two").sampling(Sampling::default().temperature(0.5))).await.unwrap();
    insta::assert_snapshot!(file.text());
}

#[tokio::test]
async fn answers_pieces_and_errors_are_replayed_as_they_came() {
    let file = File::new();
    let script = ScriptedModel::new()
        .chunks(["Hel", "lo"])
        .tool_call("search", json!({ "city": "Rome", "n": u64::MAX, "f": 0.1 }))
        .error(busy())
        .error(busy())
        .text("Whole.");
    let recording = RecordingModel::new(script, &file.path);
    let mut first = Vec::new();
    for text in ["1", "2", "3"] {
        first.push(streamed(&recording, &ask(text)).await);
    }
    let fourth = recording.complete(&ask("4")).await;
    let fifth = recording.complete(&ask("5")).await;

    let replay = ReplayModel::open(&file.path).unwrap();
    assert_eq!(replay.left(), 5);
    let mut again = Vec::new();
    for (place, text) in ["1", "2", "3"].into_iter().enumerate() {
        // When it is asked, and at which place of the conversation, does not matter.
        again.push(streamed(&replay, &at("2030-01-01T00:00:00Z", place as u64, text)).await);
    }
    assert_eq!(again, first);
    assert_eq!(first[0].as_ref().unwrap().len(), 3, "two pieces and the whole");
    assert_eq!(first[2].as_ref().unwrap_err().retry_after(), Some(Duration::from_millis(1500)));
    assert_eq!(replay.complete(&ask("4")).await, fourth);
    let whole = streamed(&replay, &ask("5")).await.unwrap();
    let response = fifth.unwrap();
    assert_eq!(
        whole,
        [Ok(ModelEvent::TextDelta("Whole.".into())), Ok(ModelEvent::Done(Box::new(response)))]
    );
    assert_eq!(replay.left(), 0);
    let error = replay.complete(&ask("6")).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("cassette-exhausted", false));
    assert!(error.to_string().contains("has only 5 interactions"), "{error}");
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_replayed_to_where_it_broke() {
    struct Broken;
    #[async_trait::async_trait]
    impl ChatModel for Broken {
        async fn complete(&self, _: &ChatRequest) -> Result<ChatResponse, ModelError> {
            unreachable!("it is streamed")
        }

        async fn stream(
            &self,
            _: &ChatRequest,
        ) -> Result<flow_core::model::ModelStream, ModelError> {
            let pieces = [
                Ok(ModelEvent::ReasoningDelta("Hm".into())),
                Ok(ModelEvent::ToolCallStart { id: "1".into(), name: "search".into() }),
                Err(busy()),
            ];
            Ok(futures_util::stream::iter(pieces).boxed())
        }
    }
    let file = File::new();
    let first = streamed(&RecordingModel::new(Broken, &file.path), &ask("1")).await;
    assert_eq!(first.as_ref().unwrap().len(), 3);
    let replay = ReplayModel::open(&file.path).unwrap();
    assert_eq!(streamed(&replay, &ask("1")).await, first);
}

#[tokio::test]
async fn what_differs_is_shown_and_not_the_whole_request() {
    let file = File::new();
    let long = "x".repeat(5000);
    let recording = RecordingModel::new(ScriptedModel::new().text("1").text("2"), &file.path);
    recording.complete(&ask("one")).await.unwrap();
    recording.complete(&ask(&format!("{long}one{long}"))).await.unwrap();
    let replay = ReplayModel::open(&file.path).unwrap();
    let error = replay.complete(&ask("uno")).await.unwrap_err();
    let (number, difference) = mismatch(&error);
    assert_eq!(
        (number, difference),
        (1, "  messages[0].parts[0].text: recorded \"one\", asked \"uno\"")
    );
    assert_eq!((error.code(), error.retryable()), ("cassette-mismatch", false));
    // The tape stands where it stood.
    assert_eq!(replay.complete(&ask("one")).await.unwrap().text(), "1");
    let asked = ask(&format!("{long}two{long}")).stop(vec!["END".into()]);
    let error = replay.complete(&asked).await.unwrap_err();
    let (number, difference) = mismatch(&error);
    assert_eq!((number, difference.lines().count()), (2, 2), "{difference}");
    assert!(error.to_string().len() < 600, "{error}");
    assert!(difference.contains("stop: recorded nothing, asked [\"END\"]"), "{difference}");
}

#[tokio::test]
async fn requests_have_to_come_in_order() {
    let file = File::new();
    let recording = RecordingModel::new(ScriptedModel::new().text("1").text("2"), &file.path);
    for text in ["one", "two"] {
        recording.complete(&ask(text)).await.unwrap();
    }
    let replay = ReplayModel::open(&file.path).unwrap();
    let error = replay.complete(&ask("two")).await.unwrap_err();
    assert_eq!(mismatch(&error).0, 1);
}

#[tokio::test]
async fn secrets_among_the_parameters_are_not_written() {
    let canary = "sk-canary-99";
    let request = |key: &str| {
        let mut sampling = Sampling::default();
        let extra = json!({ "api_key": key, "nested": [{ "Authorization": key, "top_k": 3 }] });
        sampling.extra = extra.as_object().unwrap().clone();
        ask("hi").sampling(sampling)
    };
    let file = File::new();
    let recording = RecordingModel::new(ScriptedModel::new().text("Hi."), &file.path);
    recording.complete(&request(canary)).await.unwrap();
    let text = file.text();
    assert!(!text.contains(canary) && text.contains("top_k"), "{text}");
    // Another key makes no other request.
    let replay = ReplayModel::open(&file.path).unwrap();
    replay.complete(&request("sk-other")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_at_once_are_all_recorded_in_the_order_of_their_beginnings() {
    /// Answers in the opposite order.
    struct Backwards(tokio::sync::watch::Sender<usize>);
    #[async_trait::async_trait]
    impl ChatModel for Backwards {
        async fn complete(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
            let number: usize = request.messages[0].to_text().parse().unwrap();
            let mut turn = self.0.subscribe();
            turn.wait_for(|next| *next == number).await.unwrap();
            self.0.send_modify(|next| *next = next.wrapping_sub(1));
            Ok(ChatResponse::new(vec![Part::text(format!("answer {number}"))]))
        }
    }
    let file = File::new();
    let calls = 24;
    let turn = tokio::sync::watch::Sender::new(usize::MAX);
    let recording = Arc::new(RecordingModel::new(Backwards(turn.clone()), &file.path));
    let (begun, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut running = Vec::new();
    for number in 0..calls {
        let (recording, begun) = (recording.clone(), begun.clone());
        running.push(tokio::spawn(async move {
            let request = ask(&number.to_string());
            let mut call = std::pin::pin!(recording.complete(&request));
            assert!(futures_util::poll!(&mut call).is_pending());
            begun.send(()).unwrap();
            call.await.unwrap()
        }));
        order.recv().await.unwrap();
    }
    turn.send_replace(calls - 1);
    for call in running {
        call.await.unwrap();
    }
    let replay = ReplayModel::open(&file.path).unwrap();
    for number in 0..calls {
        let response = replay.complete(&ask(&number.to_string())).await.unwrap();
        assert_eq!(response.text(), format!("answer {number}"));
    }
    let names: Vec<_> = std::fs::read_dir(file.path.parent().unwrap()).unwrap().collect();
    assert_eq!(names.len(), 1, "no draft is left: {names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_is_not_recorded() {
    let file = File::new();
    let script = ScriptedModel::new()
        .delay(Duration::from_secs(60))
        .text("late")
        .chunks(["a", "b"])
        .text("2");
    let recording = RecordingModel::new(script, &file.path);
    let late = tokio::time::timeout(Duration::from_secs(1), recording.complete(&ask("1"))).await;
    assert!(late.is_err());
    let mut pieces = recording.stream(&ask("1")).await.unwrap();
    pieces.next().await.unwrap().unwrap();
    drop(pieces);
    recording.complete(&ask("1")).await.unwrap();
    assert_eq!(file.json()["interactions"].as_array().unwrap().len(), 1);
    let replay = ReplayModel::open(&file.path).unwrap();
    assert_eq!(replay.complete(&ask("1")).await.unwrap().text(), "2");
}

#[tokio::test]
async fn a_file_that_cannot_be_used_says_why() {
    let file = File::new();
    let open = || ReplayModel::open(&file.path).unwrap_err();
    assert_eq!(open().code(), "cassette-file");
    std::fs::write(&file.path, "{ \"interactions\": [] }").unwrap();
    assert_eq!(open().code(), "cassette-malformed");
    std::fs::write(&file.path, "{ \"format\": 1, \"interactions\": [{}] }").unwrap();
    assert_eq!(open().code(), "cassette-malformed");
    // Another format may look different in all else.
    std::fs::write(&file.path, "{ \"format\": 7, \"tracks\": 3 }").unwrap();
    let error = open();
    assert_eq!(error.code(), "cassette-format");
    assert!(error.to_string().contains(&format!("reads format {CASSETTE_FORMAT}")), "{error}");

    let missing = file.path.with_file_name("missing").join("cassette.json");
    let recording = RecordingModel::new(ScriptedModel::new().text("Hi."), missing);
    let error = recording.complete(&ask("hi")).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("cassette-file", false));
}

#[tokio::test]
async fn a_failed_write_leaves_the_calls_before() {
    let file = File::new();
    let recording = RecordingModel::new(ScriptedModel::new().text("1").text("2"), &file.path);
    recording.complete(&ask("1")).await.unwrap();
    let before = file.text();
    let folder = file.path.parent().unwrap();
    // Nothing can be renamed onto a folder that is not empty.
    let kept = folder.join("kept.json");
    std::fs::rename(&file.path, &kept).unwrap();
    std::fs::create_dir(&file.path).unwrap();
    std::fs::write(file.path.join("in the way"), "").unwrap();
    recording.complete(&ask("2")).await.unwrap_err();
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 2, "the draft is gone");
}

#[test]
fn a_request_is_read_back_as_it_was_written() {
    let schema = schemars::json_schema!({ "type": "object", "properties": { "a": {} } });
    let tool = flow_core::tool::ToolDefinition {
        name: "search".into(),
        description: "Searches.".into(),
        parameters: json!({ "type": "object" }),
    };
    let mut request = ask("hi")
        .tools(vec![tool])
        .tool_choice(flow_core::model::ToolChoice::Tool("search".into()))
        .output(flow_core::model::OutputSchema { name: "form".into(), schema })
        .sampling(Sampling::default().seed(u64::MAX))
        .stop(vec!["END".into()]);
    for request in [
        request.clone(),
        {
            request.tools.clear();
            request
        },
        ChatRequest::default(),
    ] {
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<ChatRequest>(&text).unwrap(), request, "{text}");
    }
}
