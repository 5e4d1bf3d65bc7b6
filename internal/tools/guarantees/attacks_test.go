package main

const attacksPreamble = `# Attacks, and the tests that make them

This page lists what hostile or broken peers, networks and files once did to Bowline, what happens now, and the tests that
repeat each attack. [SECURITY.md](../SECURITY.md) says what else counts as a vulnerability, and [the guarantees](guarantees.md)
count all promises.

This page is generated: ` + "`make docs`" + ` rewrites it, and a test fails if it is outdated or names a test that does not exist.

| Attack | What happens | Tests |
| --- | --- | --- |
`

const attacksMeasured = `
## A good client while others attack

The table shows how well a server with its defaults serves a good client over HTTP while others attack, beside a plain server of net/http
and encoding/json (the control). ` + "`go run ./internal/tools/attacks`" + ` measures it anew.

`

func attackProofs() []proof {
	return []proof{
		{"a schema refers to itself from two alternatives, and the value is deep", "validation takes steps in proportion to the value, at most 10 million, and stops when its context ends", "TestAttacksTakeFewSteps TestValidateStopsWithItsContext TestValidationTakesLittleMemory TestMemoIsBounded"},
		{"a server lists a tool whose output schema has patterns of a million instructions, or asks with such a form", "the cost of a schema is counted before anything is compiled; a schema beyond the budget is refused", "TestCompilingIsBounded TestCompileStopsWithItsContext"},
		{"a value has 300,000 members", "names are indexed once, in linear time", "TestManyMembersTakeLittleMemory TestRepeatedNamesAreRefused"},
		{"one modern client keeps large calls (16 MiB), many small calls and listen requests open", "clients share what the server has, so other clients are served", "TestModernClientsDoNotShareTheirBounds TestBodiesOfOneClientLeaveRoomForOthers"},
		{"`initialize` contains huge names, capabilities or `_meta`", "each session stores little, and all sessions together are limited", "TestInitializeIsLimited TestInitializeIsBounded TestSessionMemoryIsBounded TestDeliveredMessageIsNotKept"},
		{"one frame contains millions of tiny values", "a frame may have 2^20 values, and no tree of Go values is built", "TestValueLimitIsExact TestDefaultValueLimit TestHostileFramesCostLittleMemory"},
		{"a proxy answers 502 for a dead server, or a server ends each event stream at once with `retry: 0`", "the client probes the server at once and leaves it after two probes; it opens the stream ever more rarely", "TestClientLeavesADeadNode TestStreamThatEndsAtOnceIsReopenedEverMoreRarely"},
		{"a client names `Mcp-Session-Forwarded` in its `Connection` header, so that a request goes round in circles", "the mark stays", "TestForwardingMarkCannotBeRemoved"},
		{"clients do not read large answers, or batches of answers", "all waiting output has one limit, which clients share; an answer beyond it becomes an error that says that the call was executed", "TestUnreadAnswersAreBounded TestBatches"},
		{"a client sends `initialize` 10,000 times", "clients share the sessions; an idle one of whom has most makes room", "TestSessionsThatWereNeverUsedMakeRoomFirst TestSessionsOfOneClientEndNoOthers TestSessionsInUseLeaveRoomForOthers TestManyIdleSessionsEndNoOnlySession TestClientsWithoutASessionEndNoSession"},
		{"a server repeats our credentials in a URL, a redirect or a body", "credentials are removed from every error and log line", "TestRedact TestErrorsShowNoCredentials TestErrorsShowNoQuery TestErrorsDoNotRepeatCredentials TestSecretsOfAnySpellingAreNotSentToAnotherHost TestCredentialsAreRedacted"},
		{"a server sends endless or huge pages of tools", "lists are limited in pages, entries and bytes", "TestPagingIsBounded TestListsAreBoundedInBytes TestListsAreBounded TestMapsAndBlocksAreBounded"},
		{"another user puts a symbolic link in the place of the lock of a login, or can write to its folder", "both are refused, with an error that says what to do", "TestALockThatIsALink TestAFolderThatOthersCanWriteTo"},
		{"a server names a URL at an IPv6 address that translates to a private IPv4 address, or that is not allocated", "of IPv6 only 2000::/3 is public, and 64:ff9b::/96 is judged as the IPv4 address within it", "TestEveryReservedRange"},
		{"an untrusted working directory contains an `.mcp.json`", "its commands run only with the user's consent, which holds for that content only", "TestConfigOfTheWorkingDirectoryNeedsConsent TestConsentOnATerminal TestCompletionStartsNoServerThatNobodyNamed"},
		{"a compressed body; half a request; a slow request", "415 for the first; the others end by a time limit", "TestHostileSockets TestServeKeepsFieldsOfTheHTTPServer"},
		{"text from a server contains control sequences, bidirectional text, or forged log lines", "control characters are escaped, names are quoted, and every line of the server is marked", "TestServersCannotDriveATerminal TestToolFailureCannotDriveTheTerminal TestPrintableLeavesNoControlCharacters TestPrintableLeavesNoTricks TestServerLogMarksEveryLine TestNamesCannotForgeLogLines"},
		{"the configuration file is a FIFO", "a signal interrupts opening it", "TestInterruptEndsOpeningAFile"},
		{"dials fail, or the server drains, while other exchanges of the link continue", "failed dials count only if no exchange of the link is alive", "TestFailedDialsDoNotCountWhileAResponseIsOpen TestFailedDialsDoNotCountWhileARequestWaits TestFullPoolIsNotAFailedDial TestTwoFailedDialsAreALoss"},
		{"several clients take all they can: connections that announce bodies and send none, answers that they do not read, tasks that live for a day", "a client may have as much as is free then, or its square where nothing is given back, so that a newcomer finds something; what was announced holds nothing", "TestNobodyTakesTheRest TestPlaces TestOnePieceIsKept TestReadingHoldsNothingBeforeTheFirstByte TestGreedyClientsLeaveRoomInTheTaskStore"},
		{"clients send half of a large body and stop", "small bodies do not wait for large ones; a body below a minimum rate is refused", "TestSmallBodiesDoNotWaitForLargeOnes TestBodyThatComesSlowly TestBodyThatStopsComing TestStalledBody TestReadTimeoutOfTheServerHolds"},
		{"128 handlers ignore that their requests were cancelled", "each is reported once by name, and no longer counts after a grace", "TestStuckToolsDoNotLockTheirClientOut TestStuckHandlersAreNamed TestHandlerThatIgnoresItsContextIsNamed"},
		{"a server closes streams to make clients poll", "the client waits for the delay that the server asks for", "TestAStreamIsResumedWhenTheServerSays TestHandlerCanAskItsClientToReconnect TestStreamBeginsWithAnIDFrom20251125"},
		{"a child prints a banner, or logs, on its standard output", "such lines are dropped and counted; after 10,000 lines or 16 MiB without a frame the link is lost", "TestServerThatPrintsABannerConnects TestTenThousandMalformedFramesLoseTheLink TestSixteenMebibytesOfMalformedFramesLoseTheLink"},
		{"a server has forgotten the session", "the client opens a new session immediately, but only once; then it waits by its backoff", "TestAForgottenSessionIsReplacedAtOnce TestAnExpiredSessionIsALoss"},
		{"a server answers 429, or 503 with `Retry-After`", "the call counts as not sent, and is retried after that delay", "TestRequestIsRepeatedAfterRetryAfter TestResponseOfAnOverloadedServerIsIgnored TestThePeerMayAskForALongerDelay TestACrashLoopHonoursTheDelayAskedFor"},
		{"clients send more than the server can process", "requests are refused with a separate error code, and over HTTP with status 503", "TestOverload TestFloodOfRequestsIsRefused"},
		{"`\"arguments\": null`; empty arguments; ids such as `1.0`", "null counts as absent; empty arguments are sent as `{}`; ids of equal numbers match", "TestNullIsAbsentAndNumbersAreEqual TestCallsWithArgumentsThatHoldNothing TestArgumentsThatHoldNothing TestIDsOfEqualNumbersAreEqual"},
		{"a batch of 2025-03-26, also right behind `initialize`; defaults of a schema; `server/discover` of a server without tools", "the batch is served and answered by an array; defaults are applied; tools are not declared", "TestBatchesAreReadWhereTheRevisionHasThem TestABatchRightBehindInitialize TestDefaultsOfADeclaredSchema TestDiscoverDescribesTheServer"},
		{"Close while notifications wait; a silent peer; a server of many idle sessions restarts", "the error names the right handler; the peer is lost within the promised time; all sessions return together", "TestCloseWhileNotificationsWait TestSilentPeerIsLostInTime TestSessionsReturnTogether TestSessionsReturnTogetherOverHTTP"},
		{"a malformed reply has a readable id, or several of which one is that of a call", "its call fails immediately", "TestMalformedAnswerEndsItsCall TestMalformedAnswerToTwoCallsEndsNeither TestMalformedResponseNamesItsRequest"},
		{"a byte order mark", "it is skipped at the beginning of a stream; later it makes its frame malformed, and the call that this answers fails immediately", "TestReaderFrames TestHeaders TestReaderFollowsTheStandard TestMalformedAnswerEndsItsCall TestDecodeRefusesAByteOrderMark"},
		{"a client pads its requests, or a server its answers, with megabytes that nobody reads", "a session keeps copies of what it needs, and never the request or the answer itself", "TestNoRequestIsKept TestNoAnswerIsKept"},
		{"a client opens a stream of log messages and never reads it", "a log message never waits: it is dropped and counted, and the session goes on", "TestLogNeverWaitsForTheClient"},
		{"a client lists a folder of 10,000 files again and again", "the sorted list is kept for a second", "TestListOfFilesIsKeptForASecond"},
		{"an `mcp.json` contains tokens in its arguments, URLs, variables or headers", "the question whether to trust it shows every name of a variable and header, no value, and masks what looks like a credential", "TestPreviewShowsNoCredentials"},
		{"a client asks for a file by another spelling of its name, or through a symbolic link", "a client can read the listed files and nothing else", "TestFilesAreServedAndNothingElse TestFilesHaveTheirOwnNamesOnly"},
	}
}
