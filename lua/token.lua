-- Stands in front of the scripts that grant with a fencing token. Tokens are decimal
-- text: from 2^53 on, Lua's numbers are not exact.

-- lead is how far tokens may be ahead of the server's clock, in microseconds, by what
-- is reserved: less than it takes to lose the counter and have another server in its
-- place. What is not reserved is counted on in any case.
local lead = 10000

-- life is how long a counter outlives its newest token, in milliseconds: 30 days.
local life = 2592000000

-- clock returns the server's time in microseconds, as text.
local function clock()
    local time = redis.call('time')
    return time[1] .. string.format('%06d', time[2])
end

local function less(a, b)
    return #a < #b or #a == #b and a < b
end

-- number returns a token as what a reply holds at the lowest price.
local function number(token)
    return less(token, '9007199254740992') and tonumber(token) or token
end

-- text undoes that.
local function text(token)
    return type(token) == 'number' and string.format('%.0f', token) or token
end

-- newest returns the newest token of a counter, '0' before the first, and nil if
-- the key cannot be counted on.
local function newest(counter)
    local text = redis.pcall('get', counter) or '0'
    if type(text) == 'table' or not string.find(text, '^%d+$') or not less(text, '9223372036854775807') then
        return nil
    end
    return text
end

-- strange is the reply of a script whose counter cannot be counted on.
local function strange(counter)
    local what = redis.call('type', counter).ok
    if what == 'none' then
        redis.call('get', counter) -- is not allowed: fails again
    end
    return {-1, counter, what}
end

-- count sets a counter, and lets it outlive its newest token for as long as it has to.
-- One without TTL was made by Redisson, which counts on: it stays so.
local function count(counter, token, ttl)
    if ttl == -1 then
        redis.call('set', counter, token)
    else
        redis.call('set', counter, token, 'px', life)
    end
end

-- following counts on from the newest token. It returns the token after it, and how
-- many of the spare ones behind that it has reserved: no more than keeps the counter
-- near the clock.
--
-- The server's clock carries the order of tokens over a lost counter, the counter
-- over a clock that was set back.
local function following(counter, newest, spare)
    local now, ttl = clock(), redis.call('pttl', counter)
    spare = tonumber(spare or 0)
    if less(newest, now) then
        spare = math.min(spare, lead)
        count(counter, now, ttl)
        if spare > 0 then
            redis.call('incrby', counter, spare)
        end
        return now, spare
    end
    spare = math.max(math.min(spare, lead - (tonumber(newest) - tonumber(now))), 0)
    redis.call('incrby', counter, 1)
    local token = redis.call('get', counter)
    if spare > 0 then
        redis.call('incrby', counter, spare)
    end
    if ttl ~= -1 then
        redis.call('pexpire', counter, life)
    end
    return token, spare
end

-- restore gives back tokens that were reserved and not used: the newest one is used
-- again, if none was counted since.
local function restore(counter, used, reserved)
    if redis.pcall('get', counter) == reserved then
        count(counter, used, redis.call('pttl', counter))
    end
end
