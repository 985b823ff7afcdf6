# Erlang: its machine code is made at run time; processes, tables, timers and a socket.
. "$SCENES/prelude.sh"
cat >scene.erl <<'E'
-module(scene).
-export([main/1]).
main(_) ->
    Self = self(),
    Sum = fun(I) -> Self ! {self(), lists:sum(lists:seq(1, 10000 * I))} end,
    Started = [spawn(fun() -> Sum(I) end) || I <- lists:seq(1, 50)],
    io:format("~p~n", [lists:sum([receive {P, V} -> V end || P <- Started])]),
    Table = ets:new(table, []),
    [ets:insert(Table, {I, I * I}) || I <- lists:seq(1, 20000)],
    io:format("~p ~p~n", [ets:info(Table, size), ets:lookup(Table, 777)]),
    timer:sleep(20),
    {ok, Listening} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listening),
    spawn(fun() ->
        {ok, Client} = gen_tcp:accept(Listening),
        {ok, Bytes} = gen_tcp:recv(Client, 5),
        gen_tcp:send(Client, [Bytes, "!"])
    end),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    gen_tcp:send(Socket, "hello"),
    io:format("~p~n", [gen_tcp:recv(Socket, 6)]),
    io:format("~s~n", [os:cmd("echo from a shell")]).
E
"${run[@]}" escript scene.erl
