-- What a Redis server does in one go: the scripts of the Redis store, and the keys they use.
--
-- Rules of this file:
-- - `-- script: NAME` begins a script; what stands before the first one stands at the head of each.
-- - A script checks before it writes. What it wrote before an error it takes back: Redis itself would keep it.
-- - Numbers with fractions (times) pass through as texts; a script compares them, and calculates only with the one that it
--   reads off its own clock: when a lease was renewed.
--
-- The keys (`{run}` is a run's id, `{place}` its number in order of making, 16 digits, a colon and its id):
--
--     rerail:number            a counter: the number of the run made last
--     rerail:run:{run}         a hash: the run as lists show it
--     rerail:log:{run}         a list: its history; each entry is the time (8 bytes, a big-endian double) and the event
--     rerail:runs              a sorted set of places by the time of making
--     rerail:status:{status}   the same, of the runs with this status
--     rerail:children:{run}    the same, of the runs that have this one as parent; with no id: those that have none
--     rerail:ids               a sorted set of all ids, in the order of the alphabet
--     rerail:blob:{digest}     a content; it expires once every run that needs it has completed long enough ago
--     rerail:blobs:{run}       a set: the contents that a run needs
--     rerail:refs:{digest}     a set: the runs that need a content
--     rerail:expiring          a sorted set: completed runs that have contents, by when they completed
--     rerail:swept             "1" once every run that completed before there was `rerail:expiring` is in it
--     rerail:actions           a counter: the number of the action posted last
--     rerail:inbox:{run}       a hash: actions that nobody has answered yet, by number
--     rerail:answers:{run}     a hash: answers, by number
--     rerail:news              a channel: "SEQ RUN" for each append, "-1 RUN" for each action, "-1 " for a run given back

-- When it is, by the server's clock, and so many seconds later.
local function at(seconds)
    local now = redis.call('TIME')
    return string.format('%.6f', now[1] + now[2] / 1000000 + seconds)
end

-- script: CREATE
-- run, time of making, status, parent, how long ago the lease was renewed (below zero), then names and values.
local run, created, status, parent = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local head = 'rerail:run:' .. run
if redis.call('EXISTS', head) == 1 then return 0 end
local place = string.format('%016d', redis.call('INCR', 'rerail:number')) .. ':' .. run
redis.call('HSET', head, 'seq', 0, 'place', place, 'renewed_at', at(ARGV[5]), unpack(ARGV, 6))
redis.call('ZADD', 'rerail:runs', created, place)
redis.call('ZADD', 'rerail:status:' .. status, created, place)
redis.call('ZADD', 'rerail:children:' .. parent, created, place)
redis.call('ZADD', 'rerail:ids', 0, run)
return 1

-- script: APPEND
-- run, after, fence, time of the last row, status, objective, milliseconds to keep, number of rows, rows, then digests
-- and contents in turn. Answers 1, or 0 if there is no such run, or the run is elsewhere; the caller looks why.
local run, after, fence, at, status, objective, keep = unpack(ARGV, 1, 7)
local count = tonumber(ARGV[8])
local head, log, mine = 'rerail:run:' .. run, 'rerail:log:' .. run, 'rerail:blobs:' .. run
local now = redis.call('HMGET', head, 'seq', 'fence', 'status', 'place', 'created_at', 'updated_at', 'objective')
if not now[1] or now[1] ~= after or now[2] ~= fence then return 0 end
local undo = {}

local function completed(digest)
    for _, other in ipairs(redis.call('SMEMBERS', 'rerail:refs:' .. digest)) do
        local known = redis.call('HGET', 'rerail:run:' .. other, 'status')
        if known and known ~= 'completed' then return false end
    end
    return true
end

local function write()
    for i = 9 + count, #ARGV, 2 do
        local digest = ARGV[i]
        local key, refs = 'rerail:blob:' .. digest, 'rerail:refs:' .. digest
        local there = redis.call('GET', key)
        if not there then
            redis.call('SET', key, ARGV[i + 1])
            undo[#undo + 1] = function() redis.call('DEL', key) end
        elseif there ~= ARGV[i + 1] then  -- its name is its digest: what differs is damaged, and is mended by this
            redis.call('SET', key, ARGV[i + 1])
            undo[#undo + 1] = function() redis.call('SET', key, there) end
        else
            redis.call('PERSIST', key)
        end
        if redis.call('SADD', refs, run) == 1 then
            undo[#undo + 1] = function() redis.call('SREM', refs, run) end
        end
        if redis.call('SADD', mine, digest) == 1 then
            undo[#undo + 1] = function() redis.call('SREM', mine, digest) end
        end
    end
    if count > 0 then
        undo[#undo + 1] = function()
            if after == '0' then redis.call('DEL', log) else redis.call('LTRIM', log, 0, after - 1) end
        end
        for first = 9, 8 + count, 1000 do
            redis.call('RPUSH', log, unpack(ARGV, first, math.min(first + 999, 8 + count)))
        end
    end
    undo[#undo + 1] = function()
        redis.call('HSET', head, 'seq', now[1], 'status', now[3], 'updated_at', now[6], 'objective', now[7])
    end
    redis.call('HSET', head, 'seq', string.format('%.0f', after + count))
    if count > 0 then redis.call('HSET', head, 'updated_at', at) end
    if objective ~= '' then redis.call('HSET', head, 'objective', objective) end
    if status ~= '' and status ~= now[3] then
        redis.call('HSET', head, 'status', status)
        undo[#undo + 1] = function()
            redis.call('ZREM', 'rerail:status:' .. status, now[4])
            redis.call('ZADD', 'rerail:status:' .. now[3], now[5], now[4])
        end
        redis.call('ZADD', 'rerail:status:' .. status, now[5], now[4])
        redis.call('ZREM', 'rerail:status:' .. now[3], now[4])
    end
end

local done, problem = pcall(write)
if not done then
    for i = #undo, 1, -1 do pcall(undo[i]) end
    return redis.error_reply(type(problem) == 'table' and problem.err or tostring(problem))
end
if status == 'completed' then
    for _, digest in ipairs(redis.call('SMEMBERS', mine)) do
        if completed(digest) then redis.call('PEXPIRE', 'rerail:blob:' .. digest, keep) end
    end
    if redis.call('EXISTS', mine) == 1 then
        redis.call('ZADD', 'rerail:expiring', redis.call('HGET', head, 'updated_at'), run)
    end
elseif status ~= '' and now[3] == 'completed' then
    for _, digest in ipairs(redis.call('SMEMBERS', mine)) do redis.call('PERSIST', 'rerail:blob:' .. digest) end
    redis.call('ZREM', 'rerail:expiring', run)
end
redis.call('PUBLISH', 'rerail:news', string.format('%.0f', after + count) .. ' ' .. run)
return 1

-- script: CLAIM
-- run, the fence that may be taken over or nothing, how long ago it was renewed (below zero), then names and values of
-- the owner. Answers the new fence, or 0.
local head = 'rerail:run:' .. ARGV[1]
local now = redis.call('HMGET', head, 'host', 'fence')
if not now[2] or (now[1] and now[2] ~= ARGV[2]) then return 0 end
redis.call('HSET', head, 'renewed_at', at(ARGV[3]), unpack(ARGV, 4))
return redis.call('HINCRBY', head, 'fence', 1)

-- script: RENEW
local head = 'rerail:run:' .. ARGV[1]
local now = redis.call('HMGET', head, 'host', 'fence')
if not now[1] or now[2] ~= ARGV[2] then return 0 end
redis.call('HSET', head, 'renewed_at', at(ARGV[3]))
return 1

-- script: RELEASE
local head = 'rerail:run:' .. ARGV[1]
if redis.call('HGET', head, 'fence') ~= ARGV[2] then return 0 end
local status = redis.call('HGET', head, 'status')
local freed = redis.call('HDEL', head, 'host', 'pid', 'started', 'worker')
if status == 'pending' or status == 'running' then redis.call('PUBLISH', 'rerail:news', '-1 ') end
return freed

-- script: POST
if redis.call('EXISTS', 'rerail:run:' .. ARGV[1]) == 0 then return 0 end
local number = redis.call('INCR', 'rerail:actions')
redis.call('HSET', 'rerail:inbox:' .. ARGV[1], number, ARGV[2])
redis.call('PUBLISH', 'rerail:news', '-1 ' .. ARGV[1])
return number

-- script: ANSWER
if redis.call('HDEL', 'rerail:inbox:' .. ARGV[1], ARGV[2]) == 1 then
    redis.call('HSET', 'rerail:answers:' .. ARGV[1], ARGV[2], ARGV[3])
end
return 1

-- script: SWEEP
-- A time, and a number of runs. Of so many runs that completed before that time, drops what only such runs need; answers
-- how many runs that were, and how much was dropped.
local before, dropped = tonumber(ARGV[1]), 0
local kept = {}  -- looked at once, however many of these runs share it
local function is_old(run)
    local now = redis.call('HMGET', 'rerail:run:' .. run, 'status', 'updated_at')
    return not now[1] or (now[1] == 'completed' and tonumber(now[2]) < before)
end
local some = redis.call('ZRANGEBYSCORE', 'rerail:expiring', '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, run in ipairs(some) do
    -- What a younger run needs as well goes with that one: this one need not be looked at again.
    redis.call('ZREM', 'rerail:expiring', run)
    local mine = redis.call('SMEMBERS', 'rerail:blobs:' .. run)
    if not is_old(run) then  -- written to after it had completed; or it goes on, and is noted again then
        local now = redis.call('HMGET', 'rerail:run:' .. run, 'status', 'updated_at')
        if now[1] == 'completed' then redis.call('ZADD', 'rerail:expiring', now[2], run) end
        mine = {}
    end
    for _, digest in ipairs(mine) do
        local refs = kept[digest] and {} or redis.call('SMEMBERS', 'rerail:refs:' .. digest)
        for _, other in ipairs(refs) do kept[digest] = kept[digest] or not is_old(other) end
        if not kept[digest] then
            dropped = dropped + redis.call('DEL', 'rerail:blob:' .. digest)
            for _, other in ipairs(refs) do redis.call('SREM', 'rerail:blobs:' .. other, digest) end
            redis.call('DEL', 'rerail:refs:' .. digest)
        end
    end
end
return {#some, dropped}

-- script: EXPIRING
-- Runs that completed, maybe before they were noted down for a sweep: those that did and have contents are noted.
for _, run in ipairs(ARGV) do
    local now = redis.call('HMGET', 'rerail:run:' .. run, 'status', 'updated_at')
    if now[1] == 'completed' and redis.call('EXISTS', 'rerail:blobs:' .. run) == 1 then
        redis.call('ZADD', 'rerail:expiring', now[2], run)
    end
end
return 1

-- script: REMOVE
-- Runs as the caller saw them: run, sequence number, fence, status, and so on in turn. Removes all of them, and what no
-- other run needs; answers how many contents went, or -1, and nothing has changed, if one is not as it was seen.
local going, dropped = {}, 0
for i = 1, #ARGV, 4 do
    local now = redis.call('HMGET', 'rerail:run:' .. ARGV[i], 'seq', 'fence', 'status', 'host')
    if now[1] ~= ARGV[i + 1] or now[2] ~= ARGV[i + 2] or now[3] ~= ARGV[i + 3] or now[4] then return -1 end
    going[ARGV[i]] = true
end
for run in pairs(going) do
    for _, place in ipairs(redis.call('ZRANGE', 'rerail:children:' .. run, 0, -1)) do
        if not going[string.sub(place, 18)] then return -1 end
    end
end
for run in pairs(going) do
    local now = redis.call('HMGET', 'rerail:run:' .. run, 'status', 'parent', 'place')
    for _, digest in ipairs(redis.call('SMEMBERS', 'rerail:blobs:' .. run)) do
        redis.call('SREM', 'rerail:refs:' .. digest, run)
        local others = redis.call('SMEMBERS', 'rerail:refs:' .. digest)
        if #others == 0 then dropped = dropped + redis.call('UNLINK', 'rerail:blob:' .. digest) end
        for _, other in ipairs(others) do  -- a sweep may have left it for this run's sake
            local known = redis.call('HMGET', 'rerail:run:' .. other, 'status', 'updated_at')
            if known[1] == 'completed' then redis.call('ZADD', 'rerail:expiring', known[2], other) end
        end
    end
    redis.call('ZREM', 'rerail:runs', now[3])
    redis.call('ZREM', 'rerail:status:' .. now[1], now[3])
    redis.call('ZREM', 'rerail:children:' .. now[2], now[3])
    redis.call('ZREM', 'rerail:ids', run)
    redis.call('ZREM', 'rerail:expiring', run)
    for _, kind in ipairs({'run:', 'log:', 'blobs:', 'inbox:', 'answers:', 'children:'}) do
        redis.call('UNLINK', 'rerail:' .. kind .. run)
    end
end
return dropped

-- script: ORPHANS
-- "look" or "drop", a kind of key, then keys of that kind. Answers how many of them are of no run, or named by none.
-- A history whose run is not listed is somebody's loss: what it needs is as if the run were there.
local how, kind, found = ARGV[1], ARGV[2], 0
local function gone(run) return redis.call('EXISTS', 'rerail:run:' .. run, 'rerail:log:' .. run) == 0 end
for i = 3, #ARGV do
    local key = ARGV[i]
    local name = string.sub(key, #'rerail:' + #kind + 2)
    local orphan = false
    if kind == 'blob' then
        orphan = true
        for _, run in ipairs(redis.call('SMEMBERS', 'rerail:refs:' .. name)) do
            if not gone(run) then orphan = false end
        end
    elseif kind == 'refs' then
        for _, run in ipairs(redis.call('SMEMBERS', key)) do
            if how == 'drop' and gone(run) then redis.call('SREM', key, run) end
        end
    elseif kind == 'log' then
        orphan = redis.call('EXISTS', 'rerail:run:' .. name) == 0
    else
        orphan = gone(name)
    end
    if orphan then
        found = found + 1
        if how == 'drop' and kind ~= 'log' then redis.call('UNLINK', key) end
    end
end
return found
